//! Archives in the ustar form: what an image needs of it, with nothing of the machine that writes them.

const BLOCK: usize = 512;

/// Writes an archive; everything in it is root's, and of one age.
pub struct Writer {
    bytes: Vec<u8>,
    /// Seconds since 1970.
    modified: u64,
}

impl Writer {
    pub fn new(modified: u64) -> Self {
        Self { bytes: Vec::new(), modified }
    }

    /// Adds a file. Names are ours, and shorter than 100 bytes.
    pub fn file(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.header(name, mode, contents.len(), b'0');
        self.bytes.extend(contents);
        self.pad(BLOCK);
    }

    pub fn folder(&mut self, name: &str) {
        self.header(&format!("{name}/"), 0o755, 0, b'5');
    }

    /// The archive, which ends with two empty blocks.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }

    fn header(&mut self, name: &str, mode: u32, size: usize, kind: u8) {
        assert!(name.len() < 100, "invariant: names are short");
        let mut header = [0; BLOCK];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, name);
        put(100, &format!("{mode:07o}"));
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{size:011o}"));
        put(136, &format!("{:011o}", self.modified));
        // the sum counts its own field as spaces
        put(148, "        ");
        put(257, "ustar\x0000");
        header[156] = kind;
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend(header);
    }

    fn pad(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }
}

/// The files of an archive by name.
#[cfg(test)]
pub fn read(bytes: &[u8]) -> std::collections::BTreeMap<String, Vec<u8>> {
    let mut files = std::collections::BTreeMap::new();
    let mut at = 0;
    while bytes[at] != 0 {
        let header = &bytes[at..at + BLOCK];
        let text = |from: usize, to: usize| String::from_utf8(header[from..to].to_vec()).unwrap();
        let size = usize::from_str_radix(&text(124, 135), 8).unwrap();
        if header[156] == b'0' {
            files.insert(text(0, 100).trim_end_matches('\0').to_owned(), bytes[at + BLOCK..][..size].to_vec());
        }
        at += BLOCK + size.next_multiple_of(BLOCK);
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The system's own program reads it as it was meant.
    #[test]
    fn others_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::new(1_700_000_000);
        writer.folder("a");
        writer.file("a/b", 0o755, b"contents");
        writer.file("empty", 0o644, b"");
        let path = folder.path().join("x.tar");
        std::fs::write(&path, writer.finish()).unwrap();
        let listed = std::process::Command::new("tar")
            .args(["--list", "--verbose", "--numeric-owner", "--utc", "--file"])
            .arg(&path)
            .output()
            .unwrap();
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        let text = String::from_utf8(listed.stdout).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["drwxr-xr-x", "0/0", "0", "2023-11-14", "22:13", "a/"]);
        assert_eq!(lines[1], ["-rwxr-xr-x", "0/0", "8", "2023-11-14", "22:13", "a/b"]);
        assert_eq!(lines[2], ["-rw-r--r--", "0/0", "0", "2023-11-14", "22:13", "empty"]);
        assert_eq!(read(&std::fs::read(&path).unwrap())["a/b"], b"contents");
    }
}
