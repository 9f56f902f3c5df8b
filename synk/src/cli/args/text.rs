//! The long texts of `--help`.

pub(super) const EXAMPLES: &str = "\
Examples:
  # Once for a cluster
  synk init

  # See what would be done, do it, wait until all is healthy
  synk plan web -n shop -f manifests/
  synk apply web -n shop -f manifests/
  synk apply web -n shop -f manifests/ --wait

  # From a chart
  helm template my-chart.tgz | synk apply my-chart -n default -f -

  # Review a plan, then do exactly that or nothing
  synk plan web -n shop -f manifests/ --out web.plan
  synk apply web --plan web.plan

  # What is there, what was there, and back to it
  synk status web
  synk history web
  synk rollback web.v3

  # All of it goes
  synk delete web

What prune does:
  What an older version of the set lists and this one does not is deleted, once
  all else is applied. Only objects that the set owns are: never a
  CustomResourceDefinition, as its objects would go with it, and never what was
  made anew by somebody else. An apply that would delete more than half of the
  set, or that is given nothing at all, is refused without --allow-prune.

Exit codes:
    0  done, or nothing to do
    1  failed, or refused
    2  the command line is wrong
    3  changes are pending (plan and --dry-run=server only)
  130  interrupted by Ctrl-C";

pub(super) const APPLY: &str = "\
What it does:
  1. reads all that it is given, and refuses what is broken, twice there, or in
     another namespace
  2. compares it with the cluster; if nothing differs, nothing is written and
     the version stays
  3. makes a new version, a ResourceSet NAME.vN, which will own what is applied
  4. applies CustomResourceDefinitions and waits until they are served, then
     Namespaces, ServiceAccounts, Secrets, then the rest; for a while, tries
     again what failed
  5. once all of it is applied, deletes what left the set (prune), and the
     versions before

Run it again after a failure of any kind: it goes on where it was. What cannot
be changed, such as a Job, is deleted and made anew. An object on the cluster
that has the annotation synk.cloudrobotics.com/ignore=true is left alone.

Examples:
  synk apply web -n shop -f manifests/
  synk apply web -n shop -f a.yaml -f b.yaml --wait --timeout 10m
  kubectl kustomize overlays/prod | synk apply web -n shop -f -
  synk apply web -n shop -f manifests/ --dry-run=server
  synk apply web --plan web.plan
  synk apply web -n shop -f manifests/ -o json | jq .version

  # Once, for what kubectl apply --server-side applied before: what left the
  # manifests since goes
  synk apply web -n shop -f manifests/ --take-fields-of kubectl";

pub(super) const PLAN: &str = "\
The API server is asked what it would make of each change (a server-side
dry-run), and nothing is written.

  +  is created    ~  is changed      ±  cannot be changed: deleted, made anew
  -  is pruned     =  stays as it is  !  cannot be applied, and why

What a Secret holds is never shown, only which of its fields change.

Exit codes: 0 nothing to do, 3 changes are pending, 1 an apply would be refused
or fail.

Examples:
  synk plan web -n shop -f manifests/
  synk plan web -n shop -f manifests/ --out web.plan
  synk plan web -n shop -f manifests/ -o json | jq .summary";

pub(super) const DELETE: &str = "\
Of a set, all versions go, and with them all that they own; its history too. Of
a version, only what it owns goes. CustomResourceDefinitions stay, as all
objects of their kinds would go with them; they are named at the end.

Examples:
  synk delete web
  synk delete web --timeout 2m
  synk delete web --wait=false --ignore-not-found
  synk delete web.v3";

pub(super) const HISTORY: &str = "\
Each apply keeps its manifests, compressed, in Secrets in the namespace of the
set: of the last 3 versions, or as many as `synk apply --history` says.

Examples:
  synk history web
  synk history web -o json";

pub(super) const ROLLBACK: &str = "\
The manifests of that version are applied again, as a new version. What is in
the set now and was not then is pruned, as with any other apply.

Examples:
  synk history web
  synk rollback web.v3 --dry-run=server
  synk rollback web.v3 --wait";

pub(super) const STATUS: &str = "\
Healthy is what is as it should be: a Deployment that has rolled out, a Job that
is complete, a claim that is bound. Other kinds are judged by their conditions.

Examples:
  synk status
  synk status web
  synk status web -o json | jq '.objects[] | .name + \": \" + .health.state'";

pub(super) const COMPLETION: &str = "\
Examples:
  source <(synk completion bash)
  synk completion fish > ~/.config/fish/completions/synk.fish";
