//! A database or a bucket that is away: what does not heal by waiting, and waiting for what does.

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use crate::wording::causes;

/// The first pause before the same is tried once more, and the longest.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Whether TLS itself failed, such as by a certificate that is not trusted: what does not heal by waiting, as a connection
/// that broke might.
pub(super) fn is_of_tls(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| {
        // An `io::Error` shows the error in it, and as its source what lies below that.
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause.is::<rustls::Error>() || inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some()
    })
}

/// Waits between tries of the same thing.
pub(super) struct Waiting {
    began: Instant,
    pause: Duration,
    told: bool,
}

impl Waiting {
    /// Counts the time from now. To be called before the first try.
    pub(super) fn begin() -> Self {
        Self { began: Instant::now(), pause: FIRST_PAUSE, told: false }
    }

    /// Sleeps until the next try, each time longer, and says once what is waited for; no more once patience has ended.
    pub(super) fn goes_on(&mut self, place: &str, found: &str, patience: Duration) -> bool {
        if self.began.elapsed() >= patience {
            return false;
        }
        if !std::mem::replace(&mut self.told, true) {
            let limit_s = patience.as_secs();
            tracing::warn!("{place} cannot be reached: {found}; waiting for it, for up to {limit_s} s");
        }
        std::thread::sleep(self.pause);
        self.pause = self.pause.saturating_mul(2).min(LONGEST_PAUSE);
        true
    }
}
