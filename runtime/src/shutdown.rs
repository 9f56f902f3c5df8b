//! How a process ends: by a signal, or by a panic.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Returns a token that SIGTERM or SIGINT cancels. A second signal ends the process at once, with exit code 130.
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

/// Makes a panic in any task abort the process: a missing task would go unnoticed, a restart does not.
pub fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}
