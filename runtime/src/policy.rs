//! Finds out whether an admission policy is in force: [`follow()`] watches and probes one, and `force` decides what follows.

use kube::Error;

use crate::errors;

mod follow;
mod force;
pub mod konnector;
mod metric;
mod probe;

pub use self::{
    follow::{Changes, Followed, follow},
    force::{PolicyTiming, Standing},
    metric::PoliciesInForce,
    probe::Probe,
};

/// What a probe of a policy showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// The policy is in force: it denied the probe.
    Live,
    /// The policy is not in force: the probe was admitted.
    Admitted,
    /// The policy of this version is not in force: an older version, or another policy, denied the probe.
    OtherWords,
    /// The probe did not reach admission, for this cause.
    Unproved(String),
}

// === impl ProbeOutcome ===

impl ProbeOutcome {
    /// Judges by the answer to a probe whether the policy of that name is in force. It is if it denied the request with exactly these
    /// words. An API server that gives no answer shows nothing, which is the error.
    pub fn of<T>(answer: Result<T, Error>, policy: &str, words: &str) -> Result<Self, Error> {
        let error = match answer {
            Ok(_) => return Ok(Self::Admitted),
            Err(error) if errors::is_transient(&error) => return Err(error),
            Err(error) => error,
        };
        if errors::is_policy_denial(&error, policy, words) {
            return Ok(Self::Live);
        }
        // Admission comes before the object is stored: a request that fails for an existing object was admitted.
        if errors::is_already_exists(&error) {
            return Ok(Self::Admitted);
        }
        if errors::policy_denials(&error).next().is_some() {
            return Ok(Self::OtherWords);
        }
        Ok(Self::Unproved(errors::explain(&error)))
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{
        Status,
        response::{StatusCause, StatusDetails},
    };

    use super::*;

    const NAME: &str = "limits";
    const WORDS: &str = "the probe is refused, revision 3";

    /// A refusal with a message and, if a policy denied the request, a cause.
    fn refusal(code: u16, message: &str, cause: Option<&str>) -> Result<(), Error> {
        let causes = cause.iter().map(|message| StatusCause {
            reason: String::new(),
            message: (*message).to_owned(),
            field: String::new(),
        });
        let details = StatusDetails {
            name: "policy.probe".to_owned(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: causes.collect(),
            retry_after_seconds: 0,
        };
        let reason = if code == 409 { "AlreadyExists" } else { "Forbidden" };
        let status = Status::failure(message, reason).with_code(code).with_details(details);
        Err(Error::Api(status.boxed()))
    }

    #[track_caller]
    fn check(answer: Result<(), Error>, expect: &ProbeOutcome) {
        assert_eq!(&ProbeOutcome::of(answer, NAME, WORDS).unwrap(), expect);
    }

    #[test]
    fn only_a_denial_in_the_policys_own_words_proves_it() {
        let denied = |policy: &str, words: &str| {
            let cause = format!("ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {words}");
            refusal(422, &format!("\"policy.probe\" is forbidden: {cause}"), Some(&cause))
        };
        check(denied(NAME, WORDS), &ProbeOutcome::Live);
        check(denied("other", WORDS), &ProbeOutcome::OtherWords);
        for revision in [2, 4, 30] {
            let other = format!("the probe is refused, revision {revision}");
            check(denied(NAME, &other), &ProbeOutcome::OtherWords);
        }
        check(Ok(()), &ProbeOutcome::Admitted);
        check(refusal(409, "policy.probe exists", None), &ProbeOutcome::Admitted);
        // A name or message that repeats the words is not the policy's denial.
        let forged = format!("ValidatingAdmissionPolicy '{NAME}' with binding '{NAME}' denied request: {WORDS}");
        check(refusal(403, &forged, None), &ProbeOutcome::Unproved(forged.clone()));
        check(refusal(401, "no", None), &ProbeOutcome::Unproved("no".to_owned()));
    }

    #[test]
    fn silence_is_no_answer() {
        assert!(ProbeOutcome::of(refusal(503, "later", None), NAME, WORDS).is_err());
    }
}
