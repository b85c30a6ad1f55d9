//! What lies below an error of a database or a bucket, and what is told of it.

use std::error::Error;
use std::io;
use std::time::Duration;

/// Whether TLS itself failed, such as by a certificate that is not trusted: what does not heal by waiting, as a connection
/// that broke might.
pub(super) fn is_of_tls(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| {
        // An `io::Error` shows the error in it, and as its source what lies below that.
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause.is::<rustls::Error>() || inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()).is_some()
    })
}

/// The error and all below it.
pub(super) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> + use<'a> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Tells whoever waits what for.
pub(super) fn tell_of_waiting(place: &str, found: &str, patience: Duration) {
    tracing::warn!("{place} cannot be reached: {found}; waiting for it, for up to {} s", patience.as_secs());
}
