//! `jetwheel explain`.

use super::{Answer, Context};

/// Arguments of `jetwheel explain`.
#[derive(Debug, clap::Args)]
pub struct Arguments {}

pub(super) fn run(_arguments: &Arguments, _context: &mut Context) -> anyhow::Result<Answer> {
    anyhow::bail!("not there yet")
}
