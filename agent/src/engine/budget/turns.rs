//! Decides which waiting engine gets the next permit.

use std::collections::VecDeque;

use bindery_runtime::queue::Priority;

/// The permits of one provider: how many are taken, and the waiters `T`, in a queue for each priority.
#[derive(Debug)]
pub(super) struct Turns<T> {
    places: usize,
    live: Line<T>,
    backlog: Line<T>,
}

#[derive(Debug)]
struct Line<T> {
    taken: usize,
    waiting: VecDeque<T>,
}

/// A quarter of the permits, at least one. Limits keep it free for the other priority, or for other engines.
pub(super) fn quarter(places: usize) -> usize {
    (places / 4).max(1)
}

impl<T> Turns<T> {
    pub(super) fn new(places: usize) -> Self {
        let line = || Line {
            taken: 0,
            waiting: VecDeque::new(),
        };
        Self {
            places,
            live: line(),
            backlog: line(),
        }
    }

    /// Queues a waiter for a permit.
    pub(super) fn wait(&mut self, priority: Priority, who: T) {
        self.line(priority).waiting.push_back(who);
    }

    /// Takes a permit for the next waiter; `None` if no waiter may have one now.
    pub(super) fn next(&mut self) -> Option<(T, Priority)> {
        let next = self.choose()?;
        let line = self.line(next);
        let who = line.waiting.pop_front()?;
        line.taken += 1;
        Some((who, next))
    }

    /// Returns a permit that was taken with this priority.
    pub(super) fn give_back(&mut self, priority: Priority) {
        self.line(priority).taken -= 1;
    }

    /// Live changes overtake the backlog, which never takes the last quarter of the permits. The backlog comes first while
    /// it has less than a quarter, or a stream of changes could hold it up for ever.
    fn choose(&self) -> Option<Priority> {
        let taken = self.live.taken + self.backlog.taken;
        let quarter = quarter(self.places);
        let (live_waits, backlog_waits) = (!self.live.waiting.is_empty(), !self.backlog.waiting.is_empty());
        if taken >= self.places {
            None
        } else if backlog_waits && self.backlog.taken < quarter {
            Some(Priority::Backlog)
        } else if live_waits {
            Some(Priority::Live)
        } else {
            (backlog_waits && self.backlog.taken < self.places - quarter).then_some(Priority::Backlog)
        }
    }

    fn line(&mut self, priority: Priority) -> &mut Line<T> {
        match priority {
            Priority::Live => &mut self.live,
            Priority::Backlog => &mut self.backlog,
        }
    }
}

#[cfg(test)]
mod tests {
    use Priority::{Backlog, Live};
    use proptest::prelude::*;

    use super::*;

    /// Checks who gets the free ones of eight permits, given how many are taken and how many wait: (live, backlog).
    #[track_caller]
    fn check(taken: (usize, usize), waiting: (usize, usize), expect: &[Priority]) {
        let mut turns = Turns::new(8);
        (turns.live.taken, turns.backlog.taken) = taken;
        for (priority, count) in [(Live, waiting.0), (Backlog, waiting.1)] {
            (0..count).for_each(|_| turns.wait(priority, ()));
        }
        let given: Vec<_> = std::iter::from_fn(|| turns.next().map(|((), priority)| priority)).collect();
        assert_eq!(given, expect, "taken {taken:?}, waiting {waiting:?}");
    }

    #[test]
    fn live_comes_first_and_either_has_its_quarter() {
        check((0, 0), (0, 0), &[]);
        check((0, 0), (9, 0), &[Live; 8]);
        check((0, 0), (0, 9), &[Backlog; 6]);
        check((0, 6), (0, 1), &[]);
        check((0, 6), (3, 1), &[Live; 2]);
        check((4, 2), (2, 2), &[Live; 2]);
        check((7, 0), (2, 2), &[Backlog]);
        check((8, 0), (1, 1), &[]);
        check((6, 1), (2, 2), &[Backlog]);
        check((0, 2), (2, 9), &[Live, Live, Backlog, Backlog, Backlog, Backlog]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Wait(Priority),
        GiveBack(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            2 => Just(Step::Wait(Live)),
            2 => Just(Step::Wait(Backlog)),
            3 => (0_usize..64).prop_map(Step::GiveBack),
        ]
    }

    proptest! {
        #[test]
        fn no_place_too_many_and_nobody_is_passed_over(
            places in 2_usize..32,
            steps in proptest::collection::vec(step(), 0..300),
        ) {
            let mut turns = Turns::new(places);
            let mut taken = Vec::new();
            let mut last = [None, None];
            let mut passed = 0;
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Wait(priority) => turns.wait(priority, number),
                    Step::GiveBack(at) if !taken.is_empty() => turns.give_back(taken.remove(at % taken.len())),
                    Step::GiveBack(_) => {}
                }
                while let Some((who, priority)) = turns.next() {
                    taken.push(priority);
                    prop_assert!(taken.len() <= places);
                    // Waiters of one priority are served in the order in which they came.
                    prop_assert!(last[priority as usize].is_none_or(|before| before < who));
                    last[priority as usize] = Some(who);
                    let backlog = taken.iter().filter(|priority| **priority == Backlog).count();
                    prop_assert!(backlog <= places - quarter(places));
                    // No live change overtakes a waiting backlog that has less than its quarter.
                    let waits = !turns.backlog.waiting.is_empty() && backlog < quarter(places);
                    passed = if priority == Live && waits { passed + 1 } else { 0 };
                    prop_assert_eq!(passed, 0);
                }
                // No permit stays free while a live change waits.
                prop_assert!(taken.len() == places || turns.live.waiting.is_empty());
            }
        }
    }
}
