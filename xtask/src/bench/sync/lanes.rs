//! The samples of all contestants in all phases.

use super::{contestant::Contestant, row::Row, turn::Sample};

/// All samples of two contestants, in the order in which phases were first measured.
#[derive(Debug)]
pub(super) struct Lanes {
    /// The one in terms of which the other is told.
    reference: Contestant,
    lanes: Vec<Lane>,
}

/// The samples of one contestant in one phase, round by round.
#[derive(Debug)]
struct Lane {
    phase: String,
    contestant: Contestant,
    samples: Vec<Sample>,
}

impl Lanes {
    /// No samples yet. The other contestant's are compared with those of this one.
    pub(super) fn beside(reference: Contestant) -> Self {
        Self {
            reference,
            lanes: Vec::new(),
        }
    }

    pub(super) fn reference(&self) -> Contestant {
        self.reference
    }

    pub(super) fn add(&mut self, phase: &str, contestant: Contestant, sample: Sample) {
        let of_it = |lane: &&mut Lane| lane.phase == phase && lane.contestant == contestant;
        match self.lanes.iter_mut().find(of_it) {
            Some(lane) => lane.samples.push(sample),
            None => self.lanes.push(Lane {
                phase: phase.to_owned(),
                contestant,
                samples: vec![sample],
            }),
        }
    }

    /// Lists the rounds in which the two made different numbers of writes.
    pub(super) fn unequal(&self) -> Vec<String> {
        let of_pair = |(ours, floor): (&Lane, &Lane)| {
            let counts = ours.samples.iter().zip(&floor.samples);
            let counts = counts.map(|(ours, floor)| (ours.writes, floor.writes));
            let unequal = (1..).zip(counts).filter(|(_, (ours, floor))| ours != floor);
            let text =
                |(round, (writes, least)): (u32, _)| format!("{}, round {round}: {writes} and {least}", ours.phase);
            unequal.map(text).collect::<Vec<_>>()
        };
        self.pairs().flat_map(of_pair).collect()
    }

    /// Explains the result of [`Lanes::unequal`] in a sentence.
    pub(super) fn says(unequal: &[String]) -> String {
        match unequal {
            [] => "the konnector made the same number of writes in each phase as the one beside it".to_owned(),
            unequal => format!(
                "the konnector did not make the same number of writes as the one beside it: {}",
                unequal.join(", ")
            ),
        }
    }

    /// The rows of both, phase by phase.
    pub(super) fn rows(self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (ours, floor) in self.pairs() {
            let phase = || ours.phase.clone();
            rows.push(Row::new(
                phase(),
                ours.contestant.name(),
                ours.samples.clone(),
                Some(&floor.samples),
            ));
            rows.push(Row::new(phase(), floor.contestant.name(), floor.samples.clone(), None));
        }
        rows
    }

    fn pairs(&self) -> impl Iterator<Item = (&Lane, &Lane)> {
        let is_reference = |lane: &&Lane| lane.contestant == self.reference;
        let (others, ours): (Vec<_>, Vec<_>) = self.lanes.iter().partition(is_reference);
        let floor_of = move |ours: &Lane| others.iter().find(|lane| lane.phase == ours.phase).copied();
        ours.into_iter().filter_map(move |ours| Some((ours, floor_of(ours)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(writes: usize) -> Sample {
        Sample {
            count: 1,
            writes,
            ..Sample::default()
        }
    }

    #[test]
    fn phases_keep_their_order_and_writes_are_compared_round_by_round() {
        let mut lanes = Lanes::beside(Contestant::Floor);
        for (phase, contestant, writes) in [
            ("update", Contestant::Floor, 5),
            ("update", Contestant::Konnector, 5),
            ("create", Contestant::Konnector, 2),
            ("create", Contestant::Floor, 2),
            ("create", Contestant::Konnector, 3),
            ("create", Contestant::Floor, 2),
        ] {
            lanes.add(phase, contestant, sample(writes));
        }
        assert_eq!(lanes.unequal(), ["create, round 2: 3 and 2"]);
        let rows = lanes.rows();
        let names: Vec<_> = rows.iter().map(|row| (row.phase.as_str(), row.by)).collect();
        let expect = [
            ("update", "konnector"),
            ("update", "floor"),
            ("create", "konnector"),
            ("create", "floor"),
        ];
        assert_eq!(names, expect);
    }
}
