//! How a process ends: by a signal, or because it is broken.

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

/// Ends the process on a panic of any task: a part that is gone without a word is worse than a restart.
pub fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}
