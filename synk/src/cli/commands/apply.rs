//! `apply`, `plan` and `rollback`.

use std::{
    io::{self, Write as _},
    path::Path,
};

use bindery_synk::{
    Failure as Refused, Manifest, ObjectRef, Options, Report, SetName, Target,
    plan::{Allowed, Decision, Plan},
};
use serde_json::json;

use super::{Context, done};
use crate::cli::{
    answer::{Answer, Stop},
    args::{AllowArgs, ApplyArgs, DryRun, PaceArgs, PlanArgs, RollbackArgs, WaitArgs},
    errors::{Exit, Failure},
    plan_file, render,
};

/// Hint while dry runs are sent.
const ASKING: &str = "asking the API server what it would make of each change";

impl Context {
    /// Runs `synk apply`.
    pub(super) async fn apply(&self, args: &ApplyArgs, manifests: &[Manifest]) -> Result<Answer, Stop> {
        let set = &args.source.name;
        if let Some(path) = &args.plan {
            return self.apply_saved(set, path, args).await;
        }
        let target = self.target(set);
        if args.how.dry_run == DryRun::Server {
            let options = self.options(&args.how.allow, None);
            return self
                .or_stopped(self.dry_run(&target, manifests, &options), "nothing was written")
                .await;
        }
        let options = self.options(&args.how.allow, Some(&args.how.pace));
        self.applied(&target, manifests, &options, &args.how.wait).await
    }

    /// Runs `synk plan`.
    pub(super) async fn plan(&self, args: &PlanArgs, manifests: &[Manifest]) -> Result<Answer, Stop> {
        let target = self.target(&args.source.name);
        let options = self.options(&args.allow, None);
        let Some(path) = &args.out else {
            return self.dry_run(&target, manifests, &options).await;
        };
        let work = self.synk.plan_saved(&target, manifests, &options);
        let (plan, saved) = self.hinted(work, ASKING).await?;
        let answer = self.planned(&plan)?;
        plan_file::write(path, &saved)?;
        if !self.quiet {
            let (set, path) = (&target.set, path.display());
            let _ = writeln!(
                io::stderr().lock(),
                "saved: synk apply {set} --plan {path} does this, or nothing"
            );
        }
        Ok(answer)
    }

    /// Runs `synk rollback`.
    pub(super) async fn rollback(&self, args: &RollbackArgs) -> Result<Answer, Stop> {
        let read = async {
            let target = self.known(&args.version.set).await?;
            match self.synk.stored(&target, args.version.number).await {
                Ok(manifests) => Ok((target, manifests)),
                Err(Refused::NoVersion { version }) => Err(Failure::NotKept(version).into()),
                Err(failure) => Err(failure.into()),
            }
        };
        let (target, manifests) = self.or_stopped(read, "nothing was written").await?;
        let mut options = self.options(&args.how.allow, Some(&args.how.pace));
        // The allowed namespaces were decided when the version was applied.
        let elsewhere = manifests
            .iter()
            .filter_map(|manifest| manifest.object.namespace.clone());
        options.allowed.namespaces.extend(elsewhere);
        if args.how.dry_run == DryRun::Server {
            let plan = self.dry_run(&target, &manifests, &options);
            return self.or_stopped(plan, "nothing was written").await;
        }
        self.applied(&target, &manifests, &options, &args.how.wait).await
    }

    async fn apply_saved(&self, set: &SetName, path: &Path, args: &ApplyArgs) -> Result<Answer, Stop> {
        let saved = plan_file::read(path)?;
        let other = |problem: String| Failure::OtherPlan {
            path: path.to_owned(),
            problem,
        };
        if saved.set != *set {
            return Err(other(format!("this is a plan of set {}, not of {set}", saved.set)).into());
        }
        match &self.namespace {
            Some(namespace) if *namespace != saved.namespace => {
                return Err(other(format!(
                    "this is a plan for namespace {}, not {namespace}",
                    saved.namespace
                ))
                .into());
            }
            _ => {}
        }
        let options = self.options(&args.how.allow, Some(&args.how.pace));
        let on = |event: bindery_synk::Event<'_>| self.progress.tell(event);
        let result = Box::pin(self.synk.apply_saved(&saved, &options, &on)).await;
        self.finished(set, result, &args.how.wait).await
    }

    async fn applied(
        &self,
        target: &Target,
        manifests: &[Manifest],
        options: &Options,
        wait: &WaitArgs,
    ) -> Result<Answer, Stop> {
        let on = |event: bindery_synk::Event<'_>| self.progress.tell(event);
        let result = Box::pin(self.synk.apply(target, manifests, options, &on)).await;
        self.finished(&target.set, result, wait).await
    }

    async fn finished(&self, set: &SetName, result: Result<Report, Refused>, wait: &WaitArgs) -> Result<Answer, Stop> {
        let report = match result {
            Ok(report) => report,
            Err(Refused::Incomplete(report)) => {
                let before = Some(Box::new(done(render::report(set, &report))));
                let failure = Refused::Incomplete(report).into();
                return Err(Stop { failure, before });
            }
            Err(failure @ Refused::Refused(_)) if self.progress.began_again() => {
                return Err(Failure::Again(Box::new(failure)).into());
            }
            Err(failure) => return Err(failure.into()),
        };
        let mut answer = done(render::report(set, &report));
        if wait.wait {
            let objects: Vec<_> = report.objects.into_iter().map(|outcome| outcome.object).collect();
            let healthy = self.healthy(&objects, wait).await;
            answer.document.insert("healthy".to_owned(), json!(healthy.is_ok()));
            match healthy {
                Ok(()) => answer.text.push_str("all of it is healthy\n"),
                Err(stop) => {
                    let before = Some(Box::new(answer));
                    return Err(Stop { before, ..stop });
                }
            }
        }
        Ok(answer)
    }

    async fn healthy(&self, objects: &[ObjectRef], wait: &WaitArgs) -> Result<(), Stop> {
        let on = |event: bindery_synk::Event<'_>| self.progress.tell(event);
        let waiting = async { Ok(self.synk.wait(objects, wait.timeout, &on).await?) };
        self.or_stopped(waiting, "all is applied, but not known to be healthy")
            .await
    }

    async fn dry_run(&self, target: &Target, manifests: &[Manifest], options: &Options) -> Result<Answer, Stop> {
        let work = self.synk.plan(target, manifests, options);
        let plan = self.hinted(work, ASKING).await?;
        self.planned(&plan)
    }

    /// Shows a plan. A plan that cannot be carried out is shown too, and is a failure.
    fn planned(&self, plan: &Plan) -> Result<Answer, Stop> {
        let mut answer = done(render::plan(plan, self.style));
        if plan.next.is_some() {
            answer.exit = Exit::Pending;
        }
        let is_impossible = |decision: &Decision| matches!(decision, Decision::Impossible { .. });
        let impossible = plan.steps.iter().filter(|step| is_impossible(&step.decision)).count();
        let failure = match (plan.refusals.as_slice(), impossible) {
            ([], 0) => return Ok(answer),
            ([], count) => Failure::Impossible(count),
            (refusals, _) => Refused::Refused(refusals.to_vec()).into(),
        };
        let before = Some(Box::new(answer));
        Err(Stop { failure, before })
    }

    fn options(&self, allow: &AllowArgs, pace: Option<&PaceArgs>) -> Options {
        let mut options = Options {
            allowed: Allowed {
                prune: allow.allow_prune,
                take_over: allow.take_over,
                namespaces: allow.allow_namespaces.clone(),
                fields_of: allow.take_fields_of.clone(),
            },
            ..Options::default()
        };
        // Planning writes nothing, so it may be interrupted anywhere.
        if let Some(pace) = pace {
            options.stop = self.stop.clone();
            options.retries = pace.retries;
            options.concurrency = pace.concurrency.get();
            options.history = pace.history;
        }
        options
    }
}
