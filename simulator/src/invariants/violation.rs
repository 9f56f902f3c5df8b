//! Violations, each with the name of its invariant.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::users::Circumstance;

/// Something that must hold in every history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Invariant {
    /// A copy on a provider ended, and neither a deletion of its source by a user was seen nor did a user say so.
    CopyEndedWithoutEvidence,
    /// A copy that is retained, or that had to be, ended before its time and although nobody discarded it.
    RetainedCopyEnded,
    /// An older state of a source replaced a newer one in its copy.
    SpecRewound,
    /// A konnector or a server wrote what only the leader may write, and sent the request after another one had taken the Lease.
    WriteByFormerLeader,
    /// A konnector of a restored second cluster wrote to a provider without having put its record as the holder of the contract there.
    WriteByClone,
    /// One contract's account changed what belongs to another contract.
    WriteAcrossContracts,
    /// The konnector deleted an object on the consumer that it had not made.
    ConsumerObjectDeleted,
    /// The konnector changed the data of a Secret or ConfigMap on the consumer that it had not made.
    ConsumerObjectOverwritten,
    /// An object that the operator made ended with a provider namespace that the operator did not delete.
    OperatorObjectDeleted,
    /// A copy became that of another source, and the user had not consented to a change of clusters.
    CopyOverwritten,
    /// The konnector removed its finalizer from a source whose copy still existed.
    SourceReleasedEarly,
    /// A change that a user made to a paused object was copied.
    PausedObjectWritten,
    /// Something was left that nobody needs any more: rights of an export, or what a binding brought.
    LeftBehind,
    /// After the last fault an object and its copy stayed different.
    NotConverged,
    /// After the last fault a binding or bundle did not become ready.
    NotReady,
    /// After everything had converged, something was still written.
    NotAtRest,
    /// A process never waited.
    Hang,
    /// A process panicked.
    Panic,
}

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// What does not hold.
    pub invariant: Invariant,
    /// Milliseconds of virtual time since the start of the history.
    pub at: u64,
    /// The object or process concerned.
    pub subject: String,
    /// What happened, in words.
    pub message: String,
    /// In which circumstances.
    pub circumstances: BTreeSet<Circumstance>,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.at / 1000, self.at % 1000);
        write!(
            f,
            "{} at {seconds}.{millis:03} s: {}: {}",
            self.invariant, self.subject, self.message
        )?;
        if !self.circumstances.is_empty() {
            write!(f, " {:?}", self.circumstances)?;
        }
        Ok(())
    }
}
