//! Bytes behind the identification of an ELF64 file, with zeros put between, so that parts lie beyond what is kept.
#![no_main]

use jetwheel::fatbin::{Finish, Scan, Scanner};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let mut file = b"\x7fELF\x02\x01\x01\0".to_vec();
    let (front, back) = bytes.split_at(bytes.len() / 2);
    file.extend_from_slice(front);
    file.resize(file.len() + usize::from(*first) * 1024, 0);
    file.extend_from_slice(back);
    scan(&file, 1 << 14);
});

fn scan(bytes: &[u8], chunk: usize) -> Scan {
    let mut scanner = Scanner::new("libnvrtc.so", bytes.len() as u64);
    bytes.chunks(chunk).for_each(|chunk| scanner.feed(chunk));
    match scanner.finish() {
        Finish::Done(scan) => scan,
        Finish::Reread(mut reread) => {
            let _ = bytes.chunks(chunk).try_for_each(|chunk| reread.feed(chunk));
            reread.finish()
        }
    }
}
