//! Rounds in which each Pod of an installation by Helm is killed or deleted in turn.

use anyhow::Result;
use bindery_image::Profile;

use crate::{cargo::step, image};

pub(crate) fn run(rounds: u64) -> Result<()> {
    image::build_all(Profile::Dev)?;
    let test = [
        "test",
        "--locked",
        "--workspace",
        "--test",
        "charts",
        "no_object_is_lost_while_pods_are_killed",
        "--",
        "--nocapture",
    ];
    step("Pods", &test, &[("BINDERY_SOAK_POD_ROUNDS", &rounds.to_string())])
}
