//! Asynchronous clients behind a synchronous interface: a small runtime of their own, and callers that wait for it.

use std::future::Future;
use std::io;
use std::sync::mpsc;

use tokio::runtime::{Builder, Runtime};

/// Threads of the runtime. They only move bytes; whoever waits has a thread of its own.
const THREADS: usize = 2;

/// The runtime. It ends with this, without waiting for what is still under way.
#[derive(Debug)]
pub(super) struct Bridge {
    runtime: Option<Runtime>,
}

impl Bridge {
    pub(super) fn new() -> io::Result<Self> {
        let runtime =
            Builder::new_multi_thread().worker_threads(THREADS).thread_name("store").enable_all().build()?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// Runs a future, and waits for it without being part of any runtime. None where the runtime is gone.
    pub(super) fn wait<F>(&self, future: F) -> Option<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (tell, told) = mpsc::sync_channel(1);
        self.spawn(async move {
            let _nobody_waits = tell.send(future.await);
        });
        told.recv().ok()
    }

    /// Runs a future beside everything else.
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            drop(runtime.spawn(future));
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // A plain drop would wait, which is not allowed on the thread of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
