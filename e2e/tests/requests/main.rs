//! BindableResourcesRequest as a resource: made with kubectl by somebody who has rights and is no admin, up to a binding that
//! works. What it waits for, how it is told, what the admission policy refuses, and the headless examples as they stand.

mod case;
mod conditions;
mod headless;
mod killed;
mod life;
mod limits;
mod once;
mod policy;
mod prepared;
mod response;
mod teams;
mod used;
mod world;
