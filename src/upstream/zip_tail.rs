//! One member of a zip file from pieces of it: end record, central directory, local header (APPNOTE.TXT 4.3).
//!
//! Only what is needed to read METADATA without the rest of a wheel; [`crate::wheel`] reads whole files.

use std::io::Read as _;

/// Bytes at the end of a file that hold the end records of any zip without a long comment.
pub(super) const TAIL: u64 = 64 * 1024;

/// Largest central directory that is fetched: 64 MiB hold 600,000 members with names of 60 bytes.
const LARGEST_DIRECTORY: u64 = 64 * 1024 * 1024;

/// Largest METADATA that is taken; the largest known have some 200 KiB.
pub(super) const LARGEST_METADATA: u64 = 16 * 1024 * 1024;

/// Length of a local file header without name and extra field.
const LOCAL_HEADER: u64 = 30;

/// Where the central directory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Directory {
    /// Offset in the file.
    pub(super) at: u64,
    /// Size in bytes.
    pub(super) size: u64,
}

/// The METADATA member, as the central directory has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    /// Offset of its local header.
    pub(super) at: u64,
    compressed: u64,
    size: u64,
    crc: u32,
    method: u16,
}

fn bytes<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    bytes(data, at).map(u16::from_le_bytes)
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    bytes(data, at).map(u32::from_le_bytes)
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    bytes(data, at).map(u64::from_le_bytes)
}

/// Finds the central directory from the last bytes of a file, which begin at `tail_at`.
pub(super) fn find_directory(tail: &[u8], tail_at: u64) -> Result<Directory, &'static str> {
    let end = memchr::memmem::rfind_iter(tail, b"PK\x05\x06")
        .find(|at| {
            u16_at(tail, at.saturating_add(20))
                .is_some_and(|comment| at.saturating_add(22).saturating_add(comment.into()) == tail.len())
        })
        .ok_or("no end record of a zip in the last 64 KiB")?;
    let short = "the end record of the zip is cut short";
    let count = u16_at(tail, end + 10).ok_or(short)?;
    let mut size = u64::from(u32_at(tail, end + 12).ok_or(short)?);
    let mut at = u64::from(u32_at(tail, end + 16).ok_or(short)?);
    if count == u16::MAX || size == u64::from(u32::MAX) || at == u64::from(u32::MAX) {
        let locator = end.checked_sub(20).filter(|at| tail[*at..].starts_with(b"PK\x06\x07"));
        let record = locator
            .and_then(|at| u64_at(tail, at + 8))
            .and_then(|at| usize::try_from(at.checked_sub(tail_at)?).ok())
            .filter(|at| tail.get(*at..).is_some_and(|rest| rest.starts_with(b"PK\x06\x06")))
            .ok_or("no zip64 end record in the last 64 KiB")?;
        size = u64_at(tail, record.saturating_add(40)).ok_or(short)?;
        at = u64_at(tail, record.saturating_add(48)).ok_or(short)?;
    }
    if size > LARGEST_DIRECTORY {
        return Err("the central directory is larger than 64 MiB");
    }
    if at
        .checked_add(size)
        .is_none_or(|end_of_directory| end_of_directory > tail_at.saturating_add(end as u64))
    {
        return Err("the central directory ends behind its end record");
    }
    Ok(Directory { at, size })
}

/// Finds METADATA in a central directory.
pub(super) fn find_metadata(directory: &[u8]) -> Result<Member, &'static str> {
    let short = "the central directory is cut short";
    let mut rest = directory;
    let mut found = None;
    while !rest.is_empty() {
        if !rest.starts_with(b"PK\x01\x02") {
            return Err("an entry of the central directory does not begin with its signature");
        }
        let name_len = usize::from(u16_at(rest, 28).ok_or(short)?);
        let extra_len = usize::from(u16_at(rest, 30).ok_or(short)?);
        let comment_len = usize::from(u16_at(rest, 32).ok_or(short)?);
        let name = rest.get(46..46 + name_len).ok_or(short)?;
        let extra = rest.get(46 + name_len..46 + name_len + extra_len).ok_or(short)?;
        if is_metadata(name) {
            let member = member(rest, extra).ok_or(short)?;
            if found.replace(member).is_some() {
                return Err("more than one METADATA");
            }
        }
        rest = rest.get(46 + name_len + extra_len + comment_len..).ok_or(short)?;
    }
    let found: Member = found.ok_or("no METADATA")?;
    if found.size > LARGEST_METADATA || found.compressed > LARGEST_METADATA {
        return Err("METADATA is larger than 16 MiB");
    }
    Ok(found)
}

fn is_metadata(name: &[u8]) -> bool {
    name.strip_suffix(b".dist-info/METADATA").is_some_and(|stem| !stem.is_empty() && !stem.contains(&b'/'))
}

fn member(entry: &[u8], extra: &[u8]) -> Option<Member> {
    let mut member = Member {
        at: u32_at(entry, 42)?.into(),
        compressed: u32_at(entry, 20)?.into(),
        size: u32_at(entry, 24)?.into(),
        crc: u32_at(entry, 16)?,
        method: u16_at(entry, 10)?,
    };
    // APPNOTE 4.5.3: the zip64 field holds, in this order, those values that do not fit.
    let mut rest = extra;
    while let (Some(id), Some(len)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let mut field = rest.get(4..4 + usize::from(len))?;
        if id == 1 {
            for value in [&mut member.size, &mut member.compressed, &mut member.at] {
                if *value == u64::from(u32::MAX) {
                    *value = u64_at(field, 0)?;
                    field = field.get(8..)?;
                }
            }
        }
        rest = rest.get(4 + usize::from(len)..)?;
    }
    Some(member)
}

impl Member {
    /// How many bytes from the local header on hold the member, if its name and extra field are not overlong.
    pub(super) fn span(&self) -> u64 {
        self.compressed.saturating_add(LOCAL_HEADER).saturating_add(1024)
    }

    /// Unpacks the member from the bytes that begin at its local header.
    pub(super) fn unpack(&self, local: &[u8]) -> Result<Vec<u8>, &'static str> {
        let short = "METADATA is cut short";
        if !local.starts_with(b"PK\x03\x04") {
            return Err("no local header where the central directory says");
        }
        let name_len = usize::from(u16_at(local, 26).ok_or(short)?);
        let extra_len = usize::from(u16_at(local, 28).ok_or(short)?);
        let compressed = usize::try_from(self.compressed).map_err(|_| short)?;
        let data =
            local.get(30 + name_len + extra_len..).and_then(|data| data.get(..compressed)).ok_or(short)?;
        let plain = match self.method {
            0 => data.to_vec(),
            8 => {
                let mut plain = Vec::new();
                flate2::read::DeflateDecoder::new(data)
                    .take(self.size.saturating_add(1))
                    .read_to_end(&mut plain)
                    .map_err(|_| "METADATA does not inflate")?;
                plain
            }
            _ => return Err("METADATA is neither stored nor deflated"),
        };
        let mut crc = flate2::Crc::new();
        crc.update(&plain);
        if plain.len() as u64 != self.size || crc.sum() != self.crc {
            return Err("METADATA has another size or CRC than the central directory says");
        }
        Ok(plain)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;
    use zip::write::SimpleFileOptions;

    use super::*;

    /// A wheel as the zip crate writes it.
    fn wheel(metadata: &[u8], method: zip::CompressionMethod, large: bool) -> Vec<u8> {
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(method).large_file(large);
        zip.start_file("demo/a.dist-info/METADATA", options).unwrap();
        zip.write_all(b"not this").unwrap();
        zip.start_file("demo-1.0.dist-info/METADATA", options).unwrap();
        zip.write_all(metadata).unwrap();
        zip.finish().unwrap().into_inner()
    }

    fn read(file: &[u8]) -> Result<Vec<u8>, &'static str> {
        let directory = find_directory(file, 0)?;
        let at = usize::try_from(directory.at).unwrap();
        let size = usize::try_from(directory.size).unwrap();
        let member = find_metadata(&file[at..at + size])?;
        member.unpack(file.get(usize::try_from(member.at).unwrap()..).unwrap_or_default())
    }

    #[test]
    fn reads_what_the_zip_crate_writes() {
        for method in [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated] {
            for large in [false, true] {
                assert_eq!(read(&wheel(b"Name: demo\n", method, large)).unwrap(), b"Name: demo\n");
            }
        }
    }

    #[test]
    fn refuses_a_changed_member() {
        let mut file = wheel(b"Name: demo\n", zip::CompressionMethod::Stored, false);
        let at = memchr::memmem::find(&file, b"Name: demo").unwrap();
        file[at] = b'n';
        assert_eq!(read(&file), Err("METADATA has another size or CRC than the central directory says"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_damage_makes_it_panic(at in any::<proptest::sample::Index>(), byte in any::<u8>(), cut in any::<proptest::sample::Index>()) {
            let mut file = wheel(b"Name: demo\n", zip::CompressionMethod::Deflated, true);
            let at = at.index(file.len());
            file[at] = byte;
            let _any = read(&file);
            let _any = read(&file[..cut.index(file.len())]);
        }
    }
}
