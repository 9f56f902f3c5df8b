//! A simulated process: one runtime, which runs only when the simulator says so and until it waits.

use std::{
    fmt,
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use tokio::{runtime::Runtime, task::JoinHandle};

use crate::{
    panics,
    poll::{self, Wait},
};

/// One simulated process. Dropping it is a crash: its tasks end where they are.
pub struct Process<T> {
    runtime: Option<Runtime>,
    main: Option<JoinHandle<T>>,
}

/// How a run of a process ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Run<T> {
    /// The process waits only for messages, or for a timer after this time. The time may be too short by a little, but never too
    /// long: a runtime also wakes to sort the timers of the near future.
    Waits(Option<Duration>),
    /// The main function of the process returned.
    Ended(T),
    /// A task of the process panicked, whether or not another task joins it. The text is the place in the sources and the message. The
    /// shipped programs end then, so the caller has to drop the process.
    Panicked(String),
    /// The process never waits.
    Spins,
}

impl<T: Send + 'static> Process<T> {
    /// Starts a process with this main function, which runs with the first [`Process::run`]. The runtime is made now, so that the
    /// clocks must be those of the process.
    pub fn start(main: impl Future<Output = T> + Send + 'static) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let main = runtime.spawn(main);
        Ok(Self {
            runtime: Some(runtime),
            main: Some(main),
        })
    }

    /// Runs the process until all its tasks wait. The clocks must be those of the process, and stand still meanwhile.
    pub fn run(&mut self) -> Run<T> {
        let (Some(runtime), Some(main)) = (&self.runtime, &mut self.main) else {
            return Run::Waits(None);
        };
        poll::begin();
        panics::forget();
        let root = poll_fn(|context| {
            if let Poll::Ready(ended) = Pin::new(&mut *main).poll(context) {
                return Poll::Ready(Some(ended));
            }
            if poll::is_over() {
                return Poll::Ready(None);
            }
            poll::set_root(context.waker());
            Poll::Pending
        });
        let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(root)));
        poll::end();
        if let Some(message) = panics::take() {
            self.main = None;
            return Run::Panicked(message);
        }
        match outcome {
            Ok(Some(Ok(ended))) => {
                self.main = None;
                Run::Ended(ended)
            }
            Ok(Some(Err(error))) => {
                self.main = None;
                Run::Panicked(error.to_string())
            }
            Ok(None) => match poll::wait() {
                Wait::For(time) => Run::Waits(time),
                Wait::None => Run::Spins,
            },
            Err(_) => Run::Panicked("the runtime panicked".to_owned()),
        }
    }
}

impl<T> Drop for Process<T> {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl<T> fmt::Debug for Process<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").finish_non_exhaustive()
    }
}
