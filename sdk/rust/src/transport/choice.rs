//! Which protocol the next call uses.

use std::time::Duration;

use tokio::time::Instant;

/// gRPC is tried again this long after a call had to use gRPC-Web: the way to the server may have changed.
const GRPC_AGAIN_AFTER: Duration = Duration::from_mins(5);

/// The protocol by which a client calls the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// gRPC, and gRPC-Web where HTTP/2 does not reach the server.
    #[default]
    Auto,
    /// gRPC over HTTP/2 alone.
    Grpc,
    /// gRPC-Web over HTTP/1.1 alone.
    GrpcWeb,
}

/// What a client knows of the way to its server.
#[derive(Debug)]
pub(super) struct ProtocolChoice {
    setting: Protocol,
    /// Until when gRPC-Web is used without trying gRPC.
    web_until: Option<Instant>,
}

/// How to send the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendPlan {
    Grpc,
    Web,
    /// By gRPC, and by gRPC-Web if HTTP/2 does not reach the server.
    GrpcOrWeb,
}

impl ProtocolChoice {
    pub(super) fn new(setting: Protocol) -> Self {
        Self {
            setting,
            web_until: None,
        }
    }

    /// Decides how to send a call. If it is time to try gRPC again, one call tries it and the others go on by gRPC-Web.
    pub(super) fn plan(&mut self, now: Instant) -> SendPlan {
        match (self.setting, self.web_until) {
            (Protocol::Grpc, _) => SendPlan::Grpc,
            (Protocol::GrpcWeb, _) => SendPlan::Web,
            (Protocol::Auto, Some(until)) if now < until => SendPlan::Web,
            (Protocol::Auto, until) => {
                self.web_until = until.map(|_| now + GRPC_AGAIN_AFTER);
                SendPlan::GrpcOrWeb
            }
        }
    }

    /// The protocol that is used first: gRPC or gRPC-Web.
    pub(super) fn current(&self, now: Instant) -> Protocol {
        match self.setting {
            Protocol::Auto if self.web_until.is_some_and(|until| now < until) => Protocol::GrpcWeb,
            Protocol::Auto => Protocol::Grpc,
            setting => setting,
        }
    }

    /// Notes that a call by gRPC reached the server.
    pub(super) fn grpc_worked(&mut self) {
        self.web_until = None;
    }

    /// Notes that a call by gRPC-Web reached the server where gRPC did not; returns whether that is news.
    pub(super) fn web_worked(&mut self, now: Instant) -> bool {
        self.web_until.replace(now + GRPC_AGAIN_AFTER).is_none()
    }

    /// Notes that a call by gRPC-Web did not reach the server, so that the next call tries gRPC: what stands before the server may have
    /// been replaced. Returns whether this call, too, may be sent by gRPC.
    pub(super) fn web_failed(&mut self) -> bool {
        self.web_until = None;
        self.setting == Protocol::Auto
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_falls_back_and_tries_grpc_again_later() {
        let mut choice = ProtocolChoice::new(Protocol::Auto);
        let start = Instant::now();
        assert_eq!(choice.plan(start), SendPlan::GrpcOrWeb);
        assert_eq!(choice.plan(start), SendPlan::GrpcOrWeb, "nothing is known yet");
        assert!(choice.web_worked(start));
        assert!(!choice.web_worked(start), "no news");
        assert_eq!(
            (choice.plan(start), choice.current(start)),
            (SendPlan::Web, Protocol::GrpcWeb)
        );
        let later = start + GRPC_AGAIN_AFTER;
        assert_eq!(choice.plan(later), SendPlan::GrpcOrWeb);
        assert_eq!(choice.plan(later), SendPlan::Web, "one call tries");
        choice.grpc_worked();
        assert_eq!(choice.plan(later), SendPlan::GrpcOrWeb);
        assert_eq!(choice.current(later), Protocol::Grpc);
    }

    #[tokio::test(start_paused = true)]
    async fn a_way_that_closes_is_forgotten() {
        let mut choice = ProtocolChoice::new(Protocol::Auto);
        let now = Instant::now();
        choice.web_worked(now);
        assert!(choice.web_failed());
        assert_eq!(choice.plan(now), SendPlan::GrpcOrWeb);
    }

    #[tokio::test(start_paused = true)]
    async fn a_setting_is_kept_whatever_happens() {
        for (setting, plan) in [(Protocol::Grpc, SendPlan::Grpc), (Protocol::GrpcWeb, SendPlan::Web)] {
            let mut choice = ProtocolChoice::new(setting);
            let now = Instant::now();
            choice.web_worked(now);
            assert_eq!(choice.plan(now), plan);
            assert!(!choice.web_failed());
            choice.grpc_worked();
            assert_eq!((choice.plan(now), choice.current(now)), (plan, setting));
        }
    }
}
