//! The signal to stop, and who is told of it.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled by SIGTERM or SIGINT. A second signal ends the process at once.
pub fn on_signal() -> std::io::Result<CancellationToken> {
    let token = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let cancelled = token.clone();
    tokio::spawn(async move {
        for first in [true, false] {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            if !first {
                std::process::exit(130);
            }
            tracing::info!("stopping");
            cancelled.cancel();
        }
    });
    Ok(token)
}
