//! What sequences are about. Each function adds a few requests; those of different subjects meet at the same objects.

mod applies;
mod collections;
mod conflicts;
mod definitions;
mod deletion;
mod escalation;
mod generated;
mod invalid;
mod json_patches;
mod lists;
mod namespaces;
mod objects;
mod owners;
mod patches;
mod policies;
mod reviews;
mod rights;
mod schemas;
mod secrets;
mod status;
mod tokens;
mod watch_ends;
mod watches;

use super::draft::Draft;

/// A function that adds requests about a subject to a sequence.
pub(super) type Author = fn(&mut Draft);

/// Name, weight and author of each subject.
pub(super) const SUBJECTS: [(&str, usize, Author); 30] = [
    ("objects", 14, objects::act),
    ("conflicts", 8, conflicts::act),
    ("lists", 8, lists::act),
    ("expired list", 3, lists::expired),
    ("watches", 12, watches::act),
    ("expired watch", 3, watch_ends::expired),
    ("watch ahead", 3, watch_ends::ahead),
    ("initial events", 4, watch_ends::initial),
    ("watch timeout", 3, watch_ends::timeouts),
    ("merge patches", 6, patches::merge),
    ("strategic patches", 3, patches::strategic),
    ("JSON patches", 4, json_patches::act),
    ("server-side apply", 10, applies::act),
    ("status", 6, status::act),
    ("deletion", 8, deletion::act),
    ("owners", 12, owners::act),
    ("deletecollection", 4, collections::act),
    ("namespaces", 8, namespaces::act),
    ("definitions", 8, definitions::act),
    ("generated names", 3, generated::act),
    ("invalid requests", 6, invalid::act),
    ("schemas", 7, schemas::act),
    ("secrets", 3, secrets::act),
    ("tokens", 3, tokens::act),
    ("rights", 4, rights::act),
    ("access reviews", 3, reviews::act),
    ("escalation", 3, escalation::act),
    ("policy of contracts", 3, policies::contracts),
    ("policy of requests", 2, policies::requests),
    ("policy of konnectors", 3, policies::konnectors),
];
