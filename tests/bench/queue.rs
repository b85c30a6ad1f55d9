//! How the queue of a shared store scales by itself: jobs that only sleep, for more and more workers.
//!
//! `cargo run --release --example queue -- postgres://USER@HOST/EMPTY-DATABASE [JOBS] [MILLISECONDS]`
#![expect(clippy::print_stdout, reason = "the figures are its answer")]

use std::time::{Duration, Instant};

use jetwheel::store::{Backends, Error, Postgres, Store};

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let Some(url) = arguments.next() else { return Ok(()) };
    let mut number = |otherwise| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (jobs, pause) = (number(200_u64), Duration::from_millis(number(100)));
    let catalogue = Some(Postgres { url, ..Postgres::default() });
    let backends = Backends { catalogue, patience: Duration::from_secs(10), ..Backends::default() };
    let mut alone = None;
    for workers in [1, 2, 4, 8, 16, 32] {
        let folders: Vec<_> = (0..workers).map(|_| tempfile::tempdir().expect("a folder")).collect();
        let stores = folders
            .iter()
            .map(|folder| Store::open_with(folder.path(), &backends))
            .collect::<Result<Vec<_>, _>>()?;
        let bodies: Vec<String> = (0..jobs).map(|job| format!("{workers} workers, job {job}")).collect();
        let queues: Vec<_> = stores.iter().filter_map(Store::queue).collect();
        if let Some(queue) = queues.first() {
            queue.add(&bodies)?;
        }
        let began = Instant::now();
        std::thread::scope(|scope| {
            for queue in &queues {
                scope.spawn(move || {
                    while let Ok(Some(job)) = queue.take() {
                        std::thread::sleep(pause);
                        let _done = job.done();
                    }
                });
            }
        });
        let seconds = began.elapsed().as_secs_f64();
        let alone = *alone.get_or_insert(seconds);
        println!("{workers:>2} workers: {seconds:>6.2} s, {:>5.1} x", alone / seconds);
    }
    Ok(())
}
