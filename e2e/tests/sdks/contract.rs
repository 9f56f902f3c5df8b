//! The table of cases.

use std::{
    env, fs,
    io::{self, Write as _},
};

use anyhow::{Result, ensure};
use bindery_contract::{case, methods, suite, table};
use futures::future::try_join_all;

use crate::runners;

/// Each SDK does what each case expects.
#[tokio::test(flavor = "multi_thread")]
async fn every_sdk_passes_every_case() -> Result<()> {
    let _alone = crate::ALONE.lock().await;
    let folder = runners::workspace().join("sdk/contract");
    let mut cases = methods::cases()?;
    cases.extend(case::read(&folder.join("cases"))?);
    cases.extend(methods::manifests(&folder.join("manifests"))?);
    if let Ok(part) = env::var("BINDERY_CASES") {
        cases.retain(|case| case.name.contains(&part));
    }
    ensure!(!cases.is_empty(), "no case has such a name");
    let scratch = tempfile::tempdir()?;
    let programs = tokio::task::spawn_blocking(runners::all).await??;
    let run = async |program: &runners::RunnerProgram| -> Result<_> {
        let folder = scratch.path().join(program.name);
        fs::create_dir(&folder)?;
        let runner = program.start(&folder)?;
        let verdicts = suite::run(&runner, &cases, &folder).await?;
        Ok((runner, verdicts))
    };
    let mut columns = Vec::new();
    let runs = try_join_all(programs.iter().map(run)).await?;
    for (program, (runner, mut verdicts)) in programs.iter().zip(runs) {
        let folder = scratch.path().join(program.name);
        suite::judge_timed_alone(&runner, &cases, &mut verdicts, &folder).await?;
        let stderr = fs::read_to_string(folder.join(format!("{}.stderr", program.name)))?;
        ensure!(
            !stderr.contains(case::Case::TOKEN_PREFIX),
            "{} prints a token: {stderr}",
            program.name
        );
        columns.push((program.name.to_owned(), verdicts));
    }
    let text = table::print(&cases, &columns) + &table::disturbed(&columns);
    let report = runners::workspace().join("target/e2e");
    fs::create_dir_all(&report)?;
    fs::write(report.join("sdks.txt"), &text)?;
    let faults = table::faults(&columns);
    ensure!(faults.is_empty(), "{faults}");
    // Past the test harness, which holds back what tests print until they fail.
    writeln!(io::stderr().lock(), "{text}")?;
    Ok(())
}
