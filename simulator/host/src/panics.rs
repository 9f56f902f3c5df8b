//! Panics of simulated processes, in whichever task they happen.

use std::{panic, sync::Once};

use parking_lot::Mutex;

/// The first panic since [`forget`] was called.
static PANIC: Mutex<Option<String>> = parking_lot::const_mutex(None);

static HOOK: Once = Once::new();

/// Begins to record panics, beside what the hook that is set already does with them. A runtime catches the panic of a task, so that
/// nothing but this hook sees those of tasks that no other task joins.
pub(crate) fn record() {
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let message = panic.to_string();
            let message = message
                .strip_prefix("panicked at ")
                .unwrap_or(&message)
                .replace('\n', " ");
            PANIC.lock().get_or_insert(message);
            report(panic);
        }));
    });
}

/// Forgets a panic that was recorded, which may be one of the simulator.
pub(crate) fn forget() {
    *PANIC.lock() = None;
}

/// Takes the first panic since [`forget`] was called: its place in the sources, and its message.
pub(crate) fn take() -> Option<String> {
    PANIC.lock().take()
}
