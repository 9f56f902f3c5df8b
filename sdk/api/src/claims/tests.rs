mod never;
mod references;
mod selection;
