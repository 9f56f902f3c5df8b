//! What is known of the containers of one Pod, for those who write it to its status.

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::status::{ContainerView, Ended, Phase};

/// The containers of a Pod, in their order.
#[derive(Debug)]
pub(super) struct Board {
    views: Mutex<Vec<ContainerView>>,
    changed: Notify,
}

impl Board {
    pub(super) fn new(views: Vec<ContainerView>) -> Self {
        Self {
            views: Mutex::new(views),
            changed: Notify::new(),
        }
    }

    /// A copy of what is known now.
    pub(super) fn views(&self) -> Vec<ContainerView> {
        self.views.lock().clone()
    }

    /// Waits for a change since the last wait.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(super) fn set(&self, name: &str, phase: Phase) {
        self.change(name, |view| view.phase = phase);
    }

    /// The image was found.
    pub(super) fn found(&self, name: &str, digest: &str) {
        self.change(name, |view| digest.clone_into(&mut view.image_id));
    }

    /// A run has ended.
    pub(super) fn ended(&self, name: &str, ended: Ended) {
        self.change(name, |view| view.last = Some(ended));
    }

    /// A container is started once more.
    pub(super) fn restarts(&self, name: &str) {
        self.change(name, |view| view.restarts += 1);
    }

    /// The startup probe has succeeded.
    pub(super) fn started(&self, name: &str, ready: bool) {
        self.change(name, |view| {
            if let Phase::Running {
                has_started, is_ready, ..
            } = &mut view.phase
            {
                *has_started = true;
                *is_ready = ready;
            }
        });
    }

    /// The readiness probe has decided.
    pub(super) fn ready(&self, name: &str, ready: bool) {
        self.change(name, |view| {
            if let Phase::Running { is_ready, .. } = &mut view.phase {
                *is_ready = ready;
            }
        });
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut ContainerView)) {
        let mut views = self.views.lock();
        let Some(view) = views.iter_mut().find(|it| it.name == name) else {
            return;
        };
        let before = view.clone();
        change(view);
        if *view != before {
            self.changed.notify_one();
        }
    }
}
