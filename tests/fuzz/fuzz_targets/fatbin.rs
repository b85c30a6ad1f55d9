//! Any bytes, as a file without a telling name, in chunks of a length that the first byte chooses.
#![no_main]

use jetwheel::fatbin::{Finish, Scan, Scanner};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let whole = scan(bytes, bytes.len());
    let chunked = scan(bytes, usize::from(*first));
    assert_eq!(whole, chunked, "the chunk size matters");
});

fn scan(bytes: &[u8], chunk: usize) -> Scan {
    let mut scanner = Scanner::detailed("data.bin", bytes.len() as u64);
    bytes.chunks(chunk.max(1)).for_each(|chunk| scanner.feed(chunk));
    match scanner.finish() {
        Finish::Done(scan) => scan,
        Finish::Reread(mut reread) => {
            let _ = bytes.chunks(chunk.max(1)).try_for_each(|chunk| reread.feed(chunk));
            reread.finish()
        }
    }
}
