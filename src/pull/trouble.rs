//! What is remembered of an upstream that failed, so that not every request waits for it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::locked;

/// By how much the time for which a failing upstream is not asked may grow.
const MOST_DOUBLED: u32 = 10;

/// How often, at most, it is noted in the store that an upstream answers.
const NOTED_EVERY: Duration = Duration::from_mins(5);

/// Whether an upstream can be asked.
#[derive(Debug)]
pub(super) struct Trouble {
    /// For how long it is not asked after its first failure.
    first: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// Until when it is not asked, and why.
    until: Option<(Instant, String)>,
    /// Whether it answered when that was last noted, and when that was.
    noted: Option<(bool, Instant)>,
}

impl Trouble {
    pub(super) fn new(first: Duration) -> Self {
        Self { first, state: Mutex::default() }
    }

    /// Why it is not asked now.
    pub(super) fn now(&self) -> Option<String> {
        let state = locked(&self.state);
        let (until, why) = state.until.as_ref()?;
        (*until > Instant::now()).then(|| why.clone())
    }

    /// Remembers how asking it went; whether that should be noted in the store.
    pub(super) fn note(&self, failed: Option<&str>) -> bool {
        let mut state = locked(&self.state);
        let now = Instant::now();
        if let Some(why) = failed {
            // What was under way when it failed first fails as well, and counts once.
            if state.until.as_ref().is_none_or(|(until, _)| *until <= now) {
                let factor = 2_u32.saturating_pow(state.failures).min(MOST_DOUBLED);
                let until = now.checked_add(self.first.saturating_mul(factor)).unwrap_or(now);
                state.until = Some((until, why.to_owned()));
                state.failures = state.failures.saturating_add(1);
            }
        } else {
            state.failures = 0;
            state.until = None;
        }
        let reached = failed.is_none();
        let old = |(was, at): (bool, Instant)| was != reached || (reached && at.elapsed() >= NOTED_EVERY);
        let due = state.noted.is_none_or(old);
        if due {
            state.noted = Some((reached, now));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_remembered_until_its_time_is_over_or_the_upstream_answers() {
        let trouble = Trouble::new(Duration::from_hours(1));
        assert_eq!(trouble.now(), None);
        assert!(trouble.note(Some("it is down")));
        assert!(!trouble.note(Some("it is still down")), "noted already");
        assert_eq!(trouble.now().as_deref(), Some("it is down"));
        assert!(trouble.note(None));
        assert_eq!(trouble.now(), None);
        let trouble = Trouble::new(Duration::ZERO);
        trouble.note(Some("it is down"));
        assert_eq!(trouble.now(), None);
    }
}
