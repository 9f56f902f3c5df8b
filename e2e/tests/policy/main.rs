//! The admission policy of `deploy/server/policy.yaml`, sentence by sentence, with real tokens of `kube-binder`. RBAC lets
//! them do everything here, so that what is refused is refused by the policy. It, those of `account-policy.yaml`, and the one on
//! claimed objects, line by line of the tables beside this file. And what the server does when a policy is gone.

mod accounts;
mod elsewhere;
mod everywhere;
mod watched;
mod ways;
mod world;
