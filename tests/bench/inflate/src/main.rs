//! Streams every deflated member of a wheel through flate2 (zlib-rs), and reads the stored ones; 256 KiB at a time.
//!
//! usage: inflate WHEEL...        prints the bytes that came out; no CRC, no digest, no zip64

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use flate2::{Decompress, FlushDecompress, Status};

const CHUNK: usize = 256 << 10;

fn le16(bytes: &[u8], at: usize) -> u64 {
    u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn le32(bytes: &[u8], at: usize) -> u64 {
    le16(bytes, at) | le16(bytes, at + 2) << 16
}

/// Reads so many bytes from a place on.
fn read_at(file: &mut File, at: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn inflate(path: &str) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let tail = read_at(&mut file, size.saturating_sub(66_000), size.min(66_000))?;
    let end = tail.windows(4).rposition(|window| window == b"PK\x05\x06").expect("no zip archive");
    let directory = read_at(&mut file, le32(&tail, end + 16), le32(&tail, end + 12))?;
    let (mut input, mut output) = (vec![0; CHUNK], vec![0; CHUNK]);
    let (mut at, mut total) = (0, 0);
    for _ in 0..le16(&tail, end + 10) {
        let header = &directory[at..];
        let (method, mut left, local) = (le16(header, 10), le32(header, 20), le32(header, 42));
        at += usize::try_from(46 + le16(header, 28) + le16(header, 30) + le16(header, 32)).unwrap();
        let local_header = read_at(&mut file, local, 30)?;
        file.seek(SeekFrom::Start(local + 30 + le16(&local_header, 26) + le16(&local_header, 28)))?;
        let mut stream = Decompress::new(false);
        let mut ended = false;
        while left > 0 && !ended {
            let wanted = usize::try_from(left).unwrap().min(CHUNK);
            file.read_exact(&mut input[..wanted])?;
            left -= wanted as u64;
            if method == 0 {
                total += wanted as u64;
                continue;
            }
            let mut taken = 0;
            while !ended {
                let (before_in, before_out) = (stream.total_in(), stream.total_out());
                let status = stream.decompress(&input[taken..wanted], &mut output, FlushDecompress::None)?;
                taken += usize::try_from(stream.total_in() - before_in).unwrap();
                let got = stream.total_out() - before_out;
                total += got;
                ended = status == Status::StreamEnd;
                if taken == wanted && got < CHUNK as u64 {
                    break;
                }
            }
        }
    }
    Ok(total)
}

fn main() -> io::Result<()> {
    for path in std::env::args().skip(1) {
        println!("{} bytes in {path}", inflate(&path)?);
    }
    Ok(())
}
