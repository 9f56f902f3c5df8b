//! What is known of the containers of one Pod. Containers tell it; the Pod writes it to its status.

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::status::{ContainerView, Ended, Phase};

/// The containers of a Pod, in their order.
#[derive(Debug)]
pub(super) struct StatusManager {
    views: Mutex<Vec<ContainerView>>,
    changed: Notify,
}

impl StatusManager {
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

    pub(super) fn set_phase(&self, name: &str, phase: Phase) {
        self.change(name, |view| view.phase = phase);
    }

    /// Notes why a container does not run, with a reason that kubelets give.
    pub(super) fn set_waiting(&self, name: &str, reason: &str, message: String) {
        let reason = reason.to_owned();
        self.set_phase(name, Phase::Waiting { reason, message });
    }

    /// Notes the digest of the image.
    pub(super) fn set_image(&self, name: &str, digest: &str) {
        self.change(name, |view| digest.clone_into(&mut view.image_id));
    }

    /// Notes the end of a run.
    pub(super) fn set_ended(&self, name: &str, ended: Ended) {
        self.change(name, |view| view.last = Some(ended));
    }

    /// Counts one more start.
    pub(super) fn count_restart(&self, name: &str) {
        self.change(name, |view| view.restarts += 1);
    }

    /// Notes that the startup probe has succeeded.
    pub(super) fn set_started(&self, name: &str) {
        self.change(name, |view| {
            if let Phase::Running { has_started, .. } = &mut view.phase {
                *has_started = true;
            }
        });
    }

    /// Notes what the readiness probe says.
    pub(super) fn set_ready(&self, name: &str, ready: bool) {
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
