//! Capture files in the classic pcap format, which `ovs-pcap` reads.
//!
//! Invariant: a file has whole records; it is continued if it has a header already.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use fabric::clock;

use crate::OpenError;

/// Header of a file: microseconds, version 2.4, no time zone, frames of up to 65,535 bytes, Ethernet.
const HEADER: [u32; 6] = [0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65_535, 1];

/// An open file.
pub(super) type Capture = File;

/// Opens a file, new or to be continued.
pub(super) fn open(path: &Path) -> Result<Capture, OpenError> {
    let open = || {
        let mut file = File::options().create(true).append(true).open(path)?;
        if file.metadata()?.len() == 0 {
            file.write_all(&words(&HEADER))?;
        }
        Ok(file)
    };
    open().map_err(|error: std::io::Error| OpenError(format!("cannot write {}: {error}", path.display())))
}

/// Adds a frame.
pub(super) fn write(file: &mut Capture, frame: &[u8]) -> std::io::Result<()> {
    let now = clock::since_epoch();
    let length = frame.len() as u32;
    let (seconds, micros) = (now / 1_000_000_000, now % 1_000_000_000 / 1000);
    let mut record = words(&[seconds as u32, micros as u32, length, length]);
    record.extend_from_slice(frame);
    file.write_all(&record)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_continued_without_a_second_header() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p1.pcap");
        for frame in [&[1, 2, 3][..], &[4; 60]] {
            write(&mut open(&path).unwrap(), frame).unwrap();
        }
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 24 + 16 + 3 + 16 + 60);
        assert_eq!(bytes[..4], [0xd4, 0xc3, 0xb2, 0xa1]);
        assert_eq!(bytes[24 + 8..24 + 19], [3, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3]);
    }

    #[test]
    fn a_folder_that_is_missing_is_named() {
        let error = open(Path::new("/nonexistent/p1.pcap")).unwrap_err();
        assert_eq!(error.0, "cannot write /nonexistent/p1.pcap: No such file or directory (os error 2)");
    }
}
