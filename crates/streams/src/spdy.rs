//! SPDY/3.1, as far as exec, attach and port-forward need it. kubectl before 1.30 (1.31 for port-forward) uses it directly on the
//! connection; later versions send it through WebSocket messages to forward ports
//! (`SPDY/3.1+portforward.k8s.io`).
//!
//! Source: the SPDY protocol, draft 3 (framing 2.2 to 2.6). There is no flow control, as in the peers' library.

use bytes::{Buf, Bytes, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};
use std::collections::BTreeMap;

/// Words of the header dictionary, each preceded by its length in four bytes (2.6.10.1).
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
    content-length content-location content-md5 content-range content-type date etag expect expires from host if-match \
    if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
    keep-alive origin";
/// The dictionary's end.
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 \
    Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 \
    Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept \
    Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,\
    sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GO_AWAY: u16 = 7;
/// Of a frame that is no data: it is read as a whole. Peers send some hundred.
const CONTROL_BYTES_MAX: usize = 64 << 10;
/// Bytes of a stream's headers once they are inflated; peers send some hundred.
pub(crate) const HEADER_BYTES_MAX: usize = 64 << 10;
/// Reasons of `RST_STREAM` and `GOAWAY`: the stream is refused; nothing is wrong.
const REFUSED_STREAM: u32 = 3;
const OK: u32 = 0;

/// A frame that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A new stream; names of headers are lower case.
    Open {
        stream: u32,
        headers: BTreeMap<String, String>,
        fin: bool,
    },
    /// A frame of data, or a part of one: `fin` is said of the last.
    Data {
        stream: u32,
        bytes: Bytes,
        fin: bool,
    },
    Reset {
        stream: u32,
    },
    Ping {
        id: u32,
    },
    GoAway,
    /// Of no interest here.
    Other,
}

/// What cannot be SPDY; the text says where.
#[derive(Debug, thiserror::Error)]
#[error("malformed SPDY: {0}")]
pub struct Malformed(&'static str);

fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1423);
    for word in WORDS.split_ascii_whitespace() {
        let word = word.replace('_', " ");
        bytes.extend_from_slice(&(word.len() as u32).to_be_bytes());
        bytes.extend_from_slice(word.as_bytes());
    }
    bytes.extend_from_slice(TAIL.as_bytes());
    bytes
}

/// Takes a stream of bytes apart: a frame at a time, and data as it comes, so that what waits is never more than the bytes that came
/// last and a control frame.
#[derive(Debug)]
pub struct Reader {
    buffer: BytesMut,
    /// Of a frame of data: its stream, whether it ends that, and how many bytes are on the way.
    data: Option<(u32, bool, usize)>,
    inflate: Inflate,
}

impl Reader {
    pub fn new() -> Self {
        Self { buffer: BytesMut::new(), data: None, inflate: Inflate::new() }
    }

    /// Takes bytes in; `frame` gives the frames that are complete with them.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame that is complete; `None`: it takes more bytes.
    ///
    /// # Errors
    /// The bytes cannot be SPDY, or a frame is larger than any peer's. Nothing that follows can be read.
    pub fn frame(&mut self) -> Result<Option<Frame>, Malformed> {
        if self.data.is_some() {
            return Ok(self.data());
        }
        let Some(head) = self.buffer.first_chunk::<8>() else { return Ok(None) };
        let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let flags = head[4];
        let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        if word >> 31 == 0 {
            self.buffer.advance(8);
            self.data = Some((word, flags & 1 != 0, length));
            return Ok(self.data());
        }
        if length > CONTROL_BYTES_MAX {
            return Err(Malformed("a frame is too long"));
        }
        if self.buffer.len() < 8 + length {
            return Ok(None);
        }
        self.buffer.advance(8);
        let body = self.buffer.split_to(length).freeze();
        self.control((word & 0xffff) as u16, flags, &body).map(Some)
    }

    /// What there is of a frame of data.
    fn data(&mut self) -> Option<Frame> {
        let (stream, fin, length) = self.data?;
        let size = length.min(self.buffer.len());
        if size == 0 && length > 0 {
            return None;
        }
        let left = length.saturating_sub(size);
        self.data = (left > 0).then_some((stream, fin, left));
        Some(Frame::Data { stream, bytes: self.buffer.split_to(size).freeze(), fin: fin && left == 0 })
    }

    fn control(&mut self, kind: u16, flags: u8, body: &[u8]) -> Result<Frame, Malformed> {
        let number = || -> Result<u32, Malformed> {
            let bytes = body.first_chunk::<4>().ok_or(Malformed("a frame is too short"))?;
            Ok(u32::from_be_bytes(*bytes) & 0x7fff_ffff)
        };
        match kind {
            SYN_STREAM => {
                let stream = number()?;
                let block = self.inflate.block(body.get(10..).ok_or(Malformed("SYN_STREAM is too short"))?)?;
                Ok(Frame::Open { stream, headers: headers(&block)?, fin: flags & 1 != 0 })
            }
            RST_STREAM => Ok(Frame::Reset { stream: number()? }),
            PING => {
                let bytes = body.first_chunk::<4>().ok_or(Malformed("PING is too short"))?;
                Ok(Frame::Ping { id: u32::from_be_bytes(*bytes) })
            }
            GO_AWAY => Ok(Frame::GoAway),
            _ => Ok(Frame::Other),
        }
    }
}

fn headers(block: &[u8]) -> Result<BTreeMap<String, String>, Malformed> {
    let mut rest = block;
    let number = |rest: &mut &[u8]| -> Result<usize, Malformed> {
        let (head, tail) = rest.split_first_chunk::<4>().ok_or(Malformed("headers end early"))?;
        *rest = tail;
        Ok(u32::from_be_bytes(*head) as usize)
    };
    let text = |rest: &mut &[u8]| -> Result<String, Malformed> {
        let length = number(rest)?;
        let (head, tail) = rest.split_at_checked(length).ok_or(Malformed("headers end early"))?;
        *rest = tail;
        Ok(String::from_utf8_lossy(head).into_owned())
    };
    let count = {
        let (head, tail) = rest.split_first_chunk::<4>().ok_or(Malformed("headers end early"))?;
        rest = tail;
        u32::from_be_bytes(*head)
    };
    let mut headers = BTreeMap::new();
    for _ in 0..count {
        let name = text(&mut rest)?;
        let value = text(&mut rest)?;
        headers.insert(name.to_lowercase(), value);
    }
    Ok(headers)
}

/// Inflates the peer's header blocks: one zlib stream with a preset dictionary.
///
/// The dictionary gets into the window as what it is to the format: bytes that came before. So the raw inflater is first
/// fed the dictionary as a stored block, and then the peer's stream without its header.
#[derive(Debug)]
struct Inflate {
    raw: Decompress,
    begun: bool,
}

impl Inflate {
    fn new() -> Self {
        Self { raw: Decompress::new(false), begun: false }
    }

    fn block(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut bytes = bytes;
        if !self.begun {
            self.begun = true;
            let (head, rest) = bytes.split_at_checked(2).ok_or(Malformed("no zlib header"))?;
            let has_dictionary = head[1] & 0x20 != 0;
            bytes = if has_dictionary { rest.get(4..).ok_or(Malformed("no zlib header"))? } else { rest };
            if has_dictionary {
                self.run(&stored(&dictionary()))?;
            }
        }
        self.run(bytes)
    }

    fn run(&mut self, input: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut out = Vec::new();
        let mut at = 0;
        loop {
            out.reserve(4096);
            let (read, had) = (self.raw.total_in(), out.len());
            let status = self
                .raw
                .decompress_vec(&input[at..], &mut out, FlushDecompress::Sync)
                .map_err(|_| Malformed("headers do not inflate"))?;
            at += (self.raw.total_in() - read) as usize;
            let stuck = self.raw.total_in() == read && out.len() == had;
            if out.len() > HEADER_BYTES_MAX {
                return Err(Malformed("headers are too long"));
            }
            if status == Status::StreamEnd || stuck || (at == input.len() && out.len() < out.capacity()) {
                return Ok(out);
            }
        }
    }
}

/// A stored (not compressed) block of a deflate stream that goes on after it.
fn stored(bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len() as u16;
    let mut block = vec![0];
    block.extend_from_slice(&length.to_le_bytes());
    block.extend_from_slice(&(!length).to_le_bytes());
    block.extend_from_slice(bytes);
    block
}

/// Makes frames.
#[derive(Debug, Default)]
pub struct Writer {
    begun: bool,
}

impl Writer {
    /// Accepts a stream, with no headers.
    pub fn reply(&mut self, stream: u32) -> Vec<u8> {
        let mut block = Vec::new();
        if !self.begun {
            self.begun = true;
            block.extend_from_slice(&[0x78, 0x01]); // zlib, no dictionary: nothing here is worth compressing
        }
        block.extend_from_slice(&stored(&0_u32.to_be_bytes()));
        block.extend_from_slice(&stored(&[])); // the sync marker: without it, Go's inflater waits for the next block
        let mut body = stream.to_be_bytes().to_vec();
        body.extend_from_slice(&block);
        control(SYN_REPLY, &body)
    }

    /// Refuses a stream, or ends it at once in both directions.
    pub fn reset(&self, stream: u32) -> Vec<u8> {
        control(RST_STREAM, &[stream.to_be_bytes(), REFUSED_STREAM.to_be_bytes()].concat())
    }

    /// Says that the connection ends.
    pub fn go_away(&self) -> Vec<u8> {
        control(GO_AWAY, &[0_u32.to_be_bytes(), OK.to_be_bytes()].concat())
    }

    pub fn ping(&self, id: u32) -> Vec<u8> {
        control(PING, &id.to_be_bytes())
    }

    pub fn data(&self, stream: u32, bytes: &[u8], fin: bool) -> Vec<u8> {
        let mut frame = stream.to_be_bytes().to_vec();
        frame.extend_from_slice(&((u32::from(fin) << 24) | bytes.len() as u32).to_be_bytes());
        frame.extend_from_slice(bytes);
        frame
    }
}

fn control(kind: u16, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80, 3];
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

/// A client's half, as far as tests need it.
#[cfg(test)]
pub mod testing {
    use super::{SYN_STREAM, control, stored};

    /// Opens streams, with headers that are not compressed.
    #[derive(Default)]
    pub struct Opener {
        begun: bool,
    }

    impl Opener {
        pub fn open(&mut self, stream: u32, headers: &[(&str, &str)]) -> Vec<u8> {
            let mut block = (headers.len() as u32).to_be_bytes().to_vec();
            for text in headers.iter().flat_map(|(name, value)| [name, value]) {
                block.extend_from_slice(&(text.len() as u32).to_be_bytes());
                block.extend_from_slice(text.as_bytes());
            }
            let mut body = stream.to_be_bytes().to_vec();
            body.extend_from_slice(&[0; 6]);
            if !std::mem::replace(&mut self.begun, true) {
                body.extend_from_slice(&[0x78, 0x01]);
            }
            body.extend_from_slice(&stored(&block));
            control(SYN_STREAM, &body)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_the_protocols() {
        let dictionary = dictionary();
        assert_eq!(dictionary.len(), 1423);
        // Its Adler-32 is what peers send as the dictionary's id.
        let (a, b) = dictionary.iter().fold((1_u32, 0_u32), |(a, b), &byte| {
            let a = (a + u32::from(byte)) % 65521;
            (a, (b + a) % 65521)
        });
        assert_eq!((b << 16) | a, 0xe3c6_a7c2);
    }

    #[test]
    fn frames_arrive_in_pieces() {
        let mut reader = Reader::new();
        // Headers as a peer that does not compress would send them: two blocks of one zlib stream.
        let mut opener = testing::Opener::default();
        let mut bytes = opener.open(1, &[("streamtype", "error")]);
        bytes.extend(opener.open(3, &[("Port", "8080")]));
        bytes.extend(Writer::default().data(3, b"hello", true));
        bytes.extend(Writer::default().ping(7));
        let mut frames = Vec::new();
        for chunk in bytes.chunks(5) {
            reader.push(chunk);
            while let Some(frame) = reader.frame().unwrap() {
                frames.push(frame);
            }
        }
        let headers = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
        // five bytes at a time: eight of the head, then what there is
        let hello: Vec<u8> = frames
            .iter()
            .flat_map(|frame| match frame {
                Frame::Data { bytes, .. } => bytes.to_vec(),
                _ => Vec::new(),
            })
            .collect();
        assert_eq!(hello, b"hello");
        frames.retain(|frame| !matches!(frame, Frame::Data { fin: false, .. }));
        if let Some(Frame::Data { bytes, .. }) = frames.get_mut(2) {
            *bytes = hello.into();
        }
        assert_eq!(
            frames,
            [
                Frame::Open { stream: 1, headers: headers("streamtype", "error"), fin: false },
                Frame::Open { stream: 3, headers: headers("port", "8080"), fin: false },
                Frame::Data { stream: 3, bytes: "hello".into(), fin: true },
                Frame::Ping { id: 7 },
            ]
        );
    }

    /// What zlib makes of two header blocks with the protocol's dictionary.
    #[test]
    fn compressed_headers() {
        let bytes = |hex: &str| -> Vec<u8> {
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
        };
        let blocks = [
            "78f9e3c6a7c202253a703a2b294a4dcc851625aca9a0808614cb45e01c606168640ca4398b20d198094ade8c0600000000ffff",
            "c2aa19540e2512d60b000000ffff",
        ];
        let mut inflate = Inflate::new();
        let kinds = blocks.map(|block| headers(&inflate.block(&bytes(block)).unwrap()).unwrap());
        let expected = |kind: &str| -> BTreeMap<String, String> {
            let pairs = [("port", "8123"), ("requestid", "0"), ("streamtype", kind)];
            pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        assert_eq!(kinds, [expected("error"), expected("data")]);
    }
}
