//! What a report counts as known, as new and as too little.

use super::*;

fn violation(invariant: Invariant, circumstances: &[Circumstance]) -> Violation {
    Violation {
        invariant,
        at: 0,
        subject: "x".to_owned(),
        message: "y".to_owned(),
        circumstances: circumstances.iter().copied().collect(),
    }
}

#[test]
fn a_violation_is_known_only_in_its_circumstances() {
    let record = TrackRecord::read().unwrap();
    let explained = |invariant, circumstances: &[Circumstance]| {
        let found = violation(invariant, circumstances);
        record.explains(&found).map(|entry| entry.id.clone())
    };
    let copy = Invariant::CopyEndedWithoutEvidence;
    assert_eq!(explained(copy, &[]), None);
    assert_eq!(explained(copy, &[Circumstance::SourceLives]), None);
    // A restore explains that a spec is rewound, and not that the copy of a source that lives ends.
    let restored = [Circumstance::ConsumerRestoredInPlace, Circumstance::SourceRewound];
    assert_eq!(explained(Invariant::SpecRewound, &restored).as_deref(), Some("N10"));
    let [restore, rewound] = restored;
    assert_eq!(explained(copy, &[restore, rewound, Circumstance::SourceLives]), None);
    // The konnector of a clone writes, and only what it touched does not converge.
    let of_clone = [Circumstance::ConsumerRestoredBeside, Circumstance::WriterIsClone];
    assert_eq!(explained(Invariant::WriteByClone, &of_clone).as_deref(), Some("D1"));
    assert_eq!(explained(Invariant::NotConverged, &of_clone), None);
    assert_eq!(
        explained(Invariant::WriteAcrossContracts, &[Circumstance::Unbound]),
        None
    );
}

#[test]
fn too_little_is_told_of_many_seeds_only() {
    let record = TrackRecord::read().unwrap();
    let mut report = Report::default();
    let outcome = Outcome {
        requests: 10,
        ..Outcome::default()
    };
    report.add(&record, &outcome);
    assert!(report.shortfalls().is_empty());
    for _ in 0..SEEDS_MIN {
        report.add(&record, &outcome);
    }
    let short = report.shortfalls();
    assert_eq!(short.len(), Action::KINDS.len() + Fault::KINDS.len() + 2, "{short:?}");
}

#[test]
fn pairs_that_no_seed_shows_are_told() {
    let record = TrackRecord::read().unwrap();
    let mut report = Report::default();
    let of_clone = [Circumstance::ConsumerRestoredBeside, Circumstance::WriterIsClone];
    let outcome = Outcome {
        violations: vec![violation(Invariant::SpecRewound, &of_clone)],
        ..Outcome::default()
    };
    for _ in 0..SEEDS_MIN {
        report.add(&record, &outcome);
    }
    let text = report.to_string();
    let told = |invariant: &str| {
        let line = format!("{invariant} by D1 in {{ConsumerRestoredBeside, WriterIsClone}}");
        text.contains(&line)
    };
    assert!(told("NotAtRest"), "{text}");
    assert!(!told("SpecRewound"), "{text}");
}

#[test]
fn new_violations_are_returned() {
    let record = TrackRecord::read().unwrap();
    let mut report = Report::default();
    let outcome = Outcome {
        seed: 7,
        violations: vec![violation(Invariant::Panic, &[])],
        ..Outcome::default()
    };
    assert_eq!(report.add(&record, &outcome), outcome.violations);
    assert_eq!(report.unknown()[0].0, 7);
    assert!(report.to_string().contains("new: Panic: 1"));
}
