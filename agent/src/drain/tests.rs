mod plan;
mod state;
