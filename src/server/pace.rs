//! Who has to give up a place while others wait for one.
//!
//! The mirror has a bounded number of places for connections, and whoever comes when all are taken waits. A client that is merely
//! slow keeps its place; one that trickles, by the byte or by a request now and then, would keep it for ever. So while somebody waits,
//! a connection ends with the answers that are under way (as web servers end idle ones when they have no more), and a client that is
//! waited for has a bounded time, to which each piece that moves adds some (as Apache's `RequestReadTimeout` does).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a client may keep the mirror waiting, where what the kernel holds for it is bounded.
const PATIENCE: Duration = Duration::from_secs(10);

/// As that where it is not: a device of 100 kB/s takes what megabytes the kernel holds in steps of some 15 s.
const UNSEEN_PATIENCE: Duration = Duration::from_secs(30);

/// As that, for a connection's first request: its head is a packet or two, and whoever is new has lost nothing yet.
const FIRST: Duration = Duration::from_secs(3);

/// How many bytes earn a client a further second, up to the patience: 32 kbit/s, which no line of today falls below for
/// long. What moves is seen in pieces of `outbox::UNSENT`, which a device of 100 kB/s takes within half of the time.
const SLOWEST: u32 = 4 << 10;

/// How long a connection may take further requests: a client that is sent away comes again at the cost of a handshake.
const TURN: Duration = Duration::from_secs(5);

/// How a connection's client keeps up with the mirror.
#[derive(Debug, Clone)]
pub(super) struct Pace(Arc<Mutex<Clock>>);

/// The client's time, which runs while it is not the mirror's turn.
#[derive(Debug)]
struct Clock {
    /// When the connection was made.
    since: Instant,
    /// How long its client may keep the mirror waiting.
    patience: Duration,
    /// Requests for which it is the mirror's turn to do something.
    works: usize,
    left: Duration,
    at: Instant,
}

/// What a connection has to do while others wait for its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duty {
    /// Nothing.
    Stay,
    /// Take no further requests.
    Finish,
    /// Go at once.
    Go,
}

/// A request for which it is the mirror's turn, until this is dropped.
#[derive(Debug)]
pub(super) struct Working(Pace);

/// A request that waits for its client's next piece, until this is dropped.
#[derive(Debug)]
pub(super) struct Waiting(Pace);

impl Pace {
    /// Of a new connection; `bounded` says whether what the kernel holds for it is.
    pub(super) fn new(bounded: bool) -> Self {
        let since = Instant::now();
        let patience = if bounded { PATIENCE } else { UNSEEN_PATIENCE };
        Self(Arc::new(Mutex::new(Clock { since, patience, works: 0, left: FIRST, at: since })))
    }

    /// The first request may come: TLS has begun.
    pub(super) fn begin(&self) {
        self.clock().left = FIRST;
    }

    /// A request came, on which the mirror works.
    pub(super) fn request(&self) -> Working {
        let mut clock = self.clock();
        clock.left = clock.patience;
        drop(clock);
        self.work()
    }

    /// The mirror works on something.
    pub(super) fn work(&self) -> Working {
        let mut clock = self.clock();
        clock.works = clock.works.saturating_add(1);
        Working(self.clone())
    }

    /// The mirror waits for its client before it can work on.
    pub(super) fn wait(&self) -> Waiting {
        let mut clock = self.clock();
        clock.works = clock.works.saturating_sub(1);
        Waiting(self.clone())
    }

    /// Whether the mirror works on something, so that the client need not move.
    pub(super) fn works(&self) -> bool {
        self.clock().works > 0
    }

    /// So many bytes moved, in either direction.
    pub(super) fn moved(&self, bytes: usize) {
        let earned = Duration::from_secs(bytes as u64) / SLOWEST;
        let mut clock = self.clock();
        clock.left = clock.left.saturating_add(earned).min(clock.patience);
    }

    /// What the connection has to do now that others wait.
    pub(super) fn duty(&self) -> Duty {
        let clock = self.clock();
        if clock.works == 0 && clock.left.is_zero() {
            Duty::Go
        } else if clock.at.saturating_duration_since(clock.since) >= TURN {
            Duty::Finish
        } else {
            Duty::Stay
        }
    }

    /// The clock, as of now.
    fn clock(&self) -> MutexGuard<'_, Clock> {
        let mut clock = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if clock.works == 0 {
            clock.left = clock.left.saturating_sub(now.saturating_duration_since(clock.at));
        }
        clock.at = now;
        clock
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        let mut clock = self.0.clock();
        clock.works = clock.works.saturating_sub(1);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut clock = self.0.clock();
        clock.works = clock.works.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(pace: &Pace, seconds: u64) {
        let mut clock = pace.0.lock().unwrap();
        clock.at -= Duration::from_secs(seconds);
        clock.since -= Duration::from_secs(seconds);
    }

    #[test]
    fn a_client_goes_that_keeps_the_mirror_waiting() {
        let pace = Pace::new(true);
        assert_eq!(pace.duty(), Duty::Stay);
        pass(&pace, 3);
        assert_eq!(pace.duty(), Duty::Go, "it said nothing");
        let pace = Pace::new(true);
        let working = pace.request();
        pass(&pace, 600);
        assert_eq!(pace.duty(), Duty::Finish, "the mirror's own time does not count");
        drop(working);
        pass(&pace, 5);
        assert_eq!(pace.duty(), Duty::Finish);
        pass(&pace, 5);
        assert_eq!(pace.duty(), Duty::Go, "it takes nothing");
    }

    #[test]
    fn more_patience_is_had_where_less_is_seen() {
        let pace = Pace::new(false);
        drop(pace.request());
        pass(&pace, 29);
        assert_eq!(pace.duty(), Duty::Finish);
        pass(&pace, 1);
        assert_eq!(pace.duty(), Duty::Go);
    }

    #[test]
    fn what_moves_earns_time() {
        let (slow, trickling) = (Pace::new(true), Pace::new(true));
        for pace in [&slow, &trickling] {
            drop(pace.request());
        }
        for _ in 0..20 {
            pass(&slow, 3);
            pass(&trickling, 3);
            slow.moved(300_000);
            trickling.moved(1000);
            assert_ne!(slow.duty(), Duty::Go);
        }
        pass(&trickling, 1);
        assert_eq!(trickling.duty(), Duty::Go);
    }

    /// A body that is being read is the client's turn only while the mirror waits for its next piece.
    #[test]
    fn a_body_that_does_not_come_is_waited_for() {
        let pace = Pace::new(true);
        let working = pace.request();
        let waiting = pace.wait();
        assert!(!pace.works());
        pass(&pace, 10);
        assert_eq!(pace.duty(), Duty::Go);
        pace.moved(1);
        drop(waiting);
        pass(&pace, 10);
        assert_eq!(pace.duty(), Duty::Finish, "the mirror's own time does not count");
        let waiting = pace.wait();
        pass(&pace, 1);
        assert_eq!(pace.duty(), Duty::Go, "a byte is worth no more than its share");
        drop((waiting, working));
        assert!(!pace.works());
    }
}
