//! WebSocket's frames (RFC 6455, section 5), as a server reads and writes them: a message is handed on in the pieces in which it comes, so
//! that nobody makes the server hold more than it has just read, whatever length a frame announces.

use bytes::{Buf, Bytes, BytesMut};

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;
/// Of a frame that is no data (5.5).
const CONTROL_BYTES_MAX: u64 = 125;

/// Why a connection is closed (7.4.1).
pub const NORMAL: u16 = 1000;
pub const PROTOCOL_ERROR: u16 = 1002;

/// What arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A part of a message, of text or not. Every message has one that begins it and one that ends it, which may be empty.
    Data {
        bytes: Bytes,
        begins: bool,
        ends: bool,
    },
    /// To be answered with the same bytes.
    Ping(Bytes),
    Pong,
    Close,
}

/// What cannot be WebSocket; the text says where.
#[derive(Debug, thiserror::Error)]
#[error("malformed WebSocket: {0}")]
pub struct Malformed(&'static str);

/// A frame's head.
struct Head {
    /// The message ends with it.
    fin: bool,
    opcode: u8,
    /// Of what follows.
    length: u64,
    mask: [u8; 4],
    /// Bytes of the head itself.
    size: usize,
}

/// A frame of data whose rest is on the way.
#[derive(Clone, Copy, Debug)]
struct Frame {
    left: u64,
    mask: [u8; 4],
    fin: bool,
}

/// Takes a client's bytes apart.
#[derive(Debug, Default)]
pub struct Reader {
    buffer: BytesMut,
    frame: Option<Frame>,
    /// A message has begun and not ended.
    in_message: bool,
    /// Of that message nothing has been handed on.
    begins: bool,
}

impl Reader {
    /// Where bytes are to be put; `piece` gives what they say. As long as all pieces are taken before the next bytes, it holds no more than
    /// one frame's head or control frame beside them.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// What the bytes say next; `None`: it takes more of them.
    ///
    /// # Errors
    /// The bytes are no frames of a client. Nothing that follows can be read.
    pub fn piece(&mut self) -> Result<Option<Piece>, Malformed> {
        loop {
            if let Some(frame) = self.frame {
                return Ok(self.data(frame));
            }
            let Some(Head { fin, opcode, length, mask, size: head }) = self.head()? else { return Ok(None) };
            if opcode >= CLOSE {
                let whole = head.saturating_add(length as usize);
                if self.buffer.len() < whole {
                    return Ok(None);
                }
                let mut body = self.buffer.split_to(whole);
                body.advance(head);
                unmask(&mut body, mask);
                return match opcode {
                    PING => Ok(Some(Piece::Ping(body.freeze()))),
                    PONG => Ok(Some(Piece::Pong)),
                    _ if body.len() == 1 => Err(Malformed("half a reason to close")),
                    _ => Ok(Some(Piece::Close)),
                };
            }
            self.buffer.advance(head);
            if opcode != CONTINUATION {
                (self.in_message, self.begins) = (true, true);
            }
            self.frame = Some(Frame { left: length, mask, fin });
        }
    }

    /// The next frame's head, if it is complete.
    fn head(&self) -> Result<Option<Head>, Malformed> {
        let Some([first, second]) = self.buffer.first_chunk::<2>().copied() else { return Ok(None) };
        let (fin, opcode) = (first & FIN != 0, first & 0x0f);
        if first & 0x70 != 0 {
            return Err(Malformed("an extension that was not agreed upon"));
        }
        if second & MASKED == 0 {
            return Err(Malformed("a frame without a mask"));
        }
        let short = u64::from(second & !MASKED);
        match opcode {
            CONTINUATION if !self.in_message => return Err(Malformed("a continuation of nothing")),
            TEXT | BINARY if self.in_message => return Err(Malformed("a message within a message")),
            CONTINUATION | TEXT | BINARY => {}
            CLOSE | PING | PONG if fin && short <= CONTROL_BYTES_MAX => {}
            CLOSE | PING | PONG => return Err(Malformed("a control frame in parts, or a long one")),
            _ => return Err(Malformed("an unknown opcode")),
        }
        let rest = &self.buffer[2..];
        let (length, size) = match short {
            126 => {
                let Some(bytes) = rest.first_chunk::<2>() else { return Ok(None) };
                (u64::from(u16::from_be_bytes(*bytes)), 2)
            }
            127 => {
                let Some(bytes) = rest.first_chunk::<8>() else { return Ok(None) };
                (u64::from_be_bytes(*bytes), 8)
            }
            length => (length, 0),
        };
        let least = [0, 126, 1 << 16][[0, 2, 8].iter().position(|of| *of == size).unwrap_or_default()];
        if length < least || length > i64::MAX as u64 {
            return Err(Malformed("a length that is not written as it must be"));
        }
        let Some(mask) = rest[size..].first_chunk::<4>() else { return Ok(None) };
        Ok(Some(Head { fin, opcode, length, mask: *mask, size: 2 + size + 4 }))
    }

    /// What there is of a frame of data.
    fn data(&mut self, frame: Frame) -> Option<Piece> {
        let size = usize::try_from(frame.left).unwrap_or(usize::MAX).min(self.buffer.len());
        let left = frame.left.saturating_sub(size as u64);
        if size == 0 && left > 0 {
            return None;
        }
        let mut bytes = self.buffer.split_to(size);
        unmask(&mut bytes, frame.mask);
        let mut mask = frame.mask;
        mask.rotate_left(size % 4);
        let ends = left == 0 && frame.fin;
        self.frame = (left > 0).then_some(Frame { left, mask, fin: frame.fin });
        self.in_message = !ends;
        Some(Piece::Data { bytes: bytes.freeze(), begins: std::mem::take(&mut self.begins), ends })
    }
}

fn unmask(bytes: &mut [u8], mask: [u8; 4]) {
    // eight at a time: the compiler makes more of it
    let mask = [mask, mask].concat();
    for bytes in bytes.chunks_mut(8) {
        bytes.iter_mut().zip(&mask).for_each(|(byte, mask)| *byte ^= mask);
    }
}

fn frame(opcode: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut frame = Vec::with_capacity(length.saturating_add(10));
    frame.push(FIN | opcode);
    match (u16::try_from(length), length) {
        (_, 0..126) => frame.push(length as u8),
        (Ok(length), _) => {
            frame.push(126);
            frame.extend_from_slice(&length.to_be_bytes());
        }
        (Err(_), length) => {
            frame.push(127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    parts.iter().for_each(|part| frame.extend_from_slice(part));
    frame
}

/// A message.
pub fn message(bytes: &[u8]) -> Vec<u8> {
    frame(BINARY, &[bytes])
}

/// A message of text.
pub fn text(bytes: &[u8]) -> Vec<u8> {
    frame(TEXT, &[bytes])
}

pub fn ping() -> Vec<u8> {
    frame(PING, &[])
}

/// The answer to a ping.
pub fn pong(bytes: &[u8]) -> Vec<u8> {
    frame(PONG, &[bytes])
}

pub fn close(code: u16) -> Vec<u8> {
    frame(CLOSE, &[&code.to_be_bytes()])
}

/// A client's half, as far as tests need it.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use super::{MASKED, frame, unmask};

    /// A frame with a mask. `fin`: its message ends with it.
    pub fn masked(fin: bool, opcode: u8, bytes: &[u8], mask: [u8; 4]) -> Vec<u8> {
        let mut all = frame(opcode, &[bytes]);
        let head = all.len() - bytes.len();
        if !fin {
            all[0] &= 0x7f;
        }
        all[1] |= MASKED;
        unmask(&mut all[head..], mask);
        all.splice(head..head, mask);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::testing::masked;
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Whole messages, and what came between their parts.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    struct Heard {
        messages: Vec<Vec<u8>>,
        unfinished: Option<Vec<u8>>,
        pings: Vec<Vec<u8>>,
        pongs: usize,
        closed: bool,
        broken: bool,
    }

    /// Reads bytes that come in pieces of these sizes; how many bytes were held at most beside those of a piece.
    fn read(bytes: &[u8], sizes: &[usize]) -> (Heard, usize) {
        let (mut reader, mut heard, mut held) = (Reader::default(), Heard::default(), 0);
        let mut sizes = sizes.iter().copied().chain(std::iter::repeat(usize::MAX));
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(sizes.next().unwrap_or(1).min(rest.len()));
            rest = after;
            reader.buffer().extend_from_slice(piece);
            loop {
                match reader.piece() {
                    Ok(None) => break,
                    Ok(Some(Piece::Data { bytes, begins, ends })) => {
                        assert_eq!(begins, heard.unfinished.is_none(), "a message begins once");
                        let message = heard.unfinished.get_or_insert_default();
                        message.extend_from_slice(&bytes);
                        if ends {
                            heard.messages.extend(heard.unfinished.take());
                        }
                    }
                    Ok(Some(Piece::Ping(bytes))) => heard.pings.push(bytes.to_vec()),
                    Ok(Some(Piece::Pong)) => heard.pongs += 1,
                    Ok(Some(Piece::Close)) => heard.closed = true,
                    Err(_) => return (Heard { broken: true, ..heard }, held),
                }
            }
            held = held.max(reader.buffer.len());
        }
        (heard, held)
    }

    fn message() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let length = prop_oneof![0_usize..4, 120_usize..130, 65_530_usize..65_540, 0_usize..3000];
        // a byte says where it is: drawing each would take the most of the time
        let bytes = |(length, first): (usize, u8)| (0..length).map(|at| (at / 251) as u8 ^ at as u8 ^ first).collect();
        vec((length, any::<u8>()).prop_map(bytes), 1..4)
    }

    proptest! {
        #[test]
        fn messages_do_not_depend_on_how_they_are_cut(
            messages in vec(message(), 0..5), controls in vec((9_u8..11, vec(any::<u8>(), 0..=125)), 0..4), mask: [u8; 4],
            sizes in vec(1_usize..2000, 0..300), cut: prop::sample::Index,
        ) {
            let (mut sent, mut expected) = (Vec::new(), Heard::default());
            let mut controls = controls.into_iter();
            for parts in &messages {
                for (at, part) in parts.iter().enumerate() {
                    let opcode = if at == 0 { BINARY } else { CONTINUATION };
                    sent.extend(masked(at + 1 == parts.len(), opcode, part, mask));
                    // between the parts of a message, too
                    if let Some((opcode, bytes)) = controls.next() {
                        sent.extend(masked(true, opcode, &bytes, mask));
                        if opcode == PING { expected.pings.push(bytes) } else { expected.pongs += 1 }
                    }
                }
                expected.messages.push(parts.concat());
            }
            prop_assert_eq!(&read(&sent, &[]).0, &expected);
            let (heard, held) = read(&sent, &sizes);
            prop_assert_eq!(heard, expected);
            prop_assert!(held < 14 + 125, "{} bytes are held", held);
            // an end anywhere: what was told before stays told, and nothing waits but a head or a control frame
            let cut = &sent[..cut.index(sent.len() + 1)];
            let (mut whole, mut pieces) = (read(cut, &[]), read(cut, &sizes));
            prop_assert!(whole.1 < 14 + 125 && pieces.1 < 14 + 125);
            // what there is of a message may be told as nothing yet, or as nothing
            for heard in [&mut whole.0, &mut pieces.0] {
                heard.unfinished = heard.unfinished.take().filter(|message| !message.is_empty());
            }
            prop_assert_eq!(whole.0, pieces.0);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..600), sizes in vec(1_usize..50, 0..50)) {
            let (whole, pieces) = (read(&bytes, &[]), read(&bytes, &sizes));
            prop_assert!(whole.1 < 14 + 125 && pieces.1 < 14 + 125);
            prop_assert_eq!((whole.0.messages, whole.0.pings, whole.0.broken), (pieces.0.messages, pieces.0.pings, pieces.0.broken));
        }
    }

    #[test]
    fn what_is_announced_is_not_waited_for() {
        let mut reader = Reader::default();
        // 2^62 bytes, of which three come
        reader.buffer().extend_from_slice(&[0x82, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(reader.piece().unwrap(), None);
        reader.buffer().extend_from_slice(&[b'a' ^ 1, b'b' ^ 2, b'c' ^ 3]);
        let data = |text: &'static str, begins| Some(Piece::Data { bytes: text.into(), begins, ends: false });
        assert_eq!(reader.piece().unwrap(), data("abc", true));
        assert_eq!(reader.piece().unwrap(), None);
        reader.buffer().extend_from_slice(&[b'd' ^ 4, b'e' ^ 1]);
        assert_eq!(reader.piece().unwrap(), data("de", false));
    }

    #[test]
    fn what_no_client_sends_is_refused() {
        let mask = [1, 2, 3, 4];
        let with = |at: usize, value: u8| {
            let mut frame = masked(true, BINARY, b"abc", mask);
            frame[at] = value;
            frame
        };
        let long = |second: u8, length: &[u8]| [&[0x82, second][..], length, &mask].concat();
        let text = masked(false, TEXT, b"a", mask);
        for (what, bytes) in [
            ("a reserved bit", with(0, 0xc2)),
            ("opcode 3", with(0, 0x83)),
            ("opcode 11", with(0, 0x8b)),
            ("no mask", with(1, 3)),
            ("a continuation of nothing", masked(true, CONTINUATION, b"a", mask)),
            ("a message in a message", [text.clone(), text].concat()),
            ("a ping in parts", masked(false, PING, b"", mask)),
            ("a long ping", masked(true, PING, &[0; 126], mask)),
            ("a close of one byte", masked(true, CLOSE, b"a", mask)),
            ("a length of two bytes that fits into none", long(0xfe, &[0, 125])),
            ("a length of eight bytes that fits into two", long(0xff, &[0, 0, 0, 0, 0, 0, 255, 255])),
            ("a negative length", long(0xff, &[0x80, 0, 0, 0, 0, 0, 0, 0])),
        ] {
            assert!(read(&bytes, &[]).0.broken, "{what}");
            assert!(read(&bytes, &[1; 200]).0.broken, "{what}, a byte at a time");
        }
        for (length, head) in [(0, 2), (125, 2), (126, 4), (65_535, 4), (65_536, 10)] {
            assert_eq!(super::message(&vec![0; length]).len(), length + head);
        }
    }
}
