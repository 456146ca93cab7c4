//! Ctrl-C and SIGTERM: the first asks to stop cleanly, the second ends the process at once.

use crate::exit::Exit;
use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Tells when the user wants to stop.
#[derive(Clone)]
pub(crate) struct Signals {
    asked: CancellationToken,
}

impl Signals {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Signals> {
        let interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
        let terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
        let asked = CancellationToken::new();
        tokio::spawn(count(interrupt, terminate, asked.clone()));
        Ok(Signals { asked })
    }

    /// Waits for the first one.
    pub(crate) async fn asked(&self) {
        self.asked.cancelled().await;
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.is_cancelled()
    }
}

async fn count(mut interrupt: Signal, mut terminate: Signal, asked: CancellationToken) {
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if asked.is_cancelled() {
            // The state is durable at every moment, so there is nothing to lose.
            std::process::exit(Exit::Interrupted as i32);
        }
        asked.cancel();
    }
}
