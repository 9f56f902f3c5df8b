//! Builds images, from sources to layouts.

use std::{
    collections::HashMap,
    fs::{self, File},
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context as _, Result, anyhow};
use oci_spec::image::{
    ANNOTATION_CREATED, ANNOTATION_DESCRIPTION, ANNOTATION_LICENSES, ANNOTATION_REVISION, ANNOTATION_SOURCE,
    ANNOTATION_TITLE, ANNOTATION_VERSION, MediaType,
};

use crate::{
    Profile, Program, Workspace, compile,
    configuration::{self, Description},
    dependencies, executable, files,
    layer::{self, Layer},
    layout::{self, Artifact, Blob},
    libraries, notices, sbom,
};

/// How images are built.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the programs are compiled.
    pub profile: Profile,
    /// The folder that gets a layout for each image, `NAME`, and its debug information, `NAME.debug`.
    pub output: PathBuf,
    /// The address of the sources, for the label `org.opencontainers.image.source`.
    pub source: Option<String>,
}

/// An image that was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The program in it.
    pub name: &'static str,
    /// Its layout.
    pub layout: PathBuf,
    /// The debug information of its program.
    pub debug: PathBuf,
    /// The digest of its manifest.
    pub digest: String,
    /// The size of its layers in a registry, in bytes.
    pub compressed: usize,
    /// The size of its layers, unpacked, in bytes.
    pub uncompressed: usize,
}

/// Compiles programs and builds their images.
pub fn build(workspace: &Workspace, programs: &[Program], options: &Options) -> Result<Vec<Built>> {
    compile::compile(workspace, options.profile)?;
    assemble(workspace, programs, options)
}

/// Builds the images of programs that are compiled already.
pub fn assemble(workspace: &Workspace, programs: &[Program], options: &Options) -> Result<Vec<Built>> {
    let output = &options.output;
    fs::create_dir_all(output).with_context(|| format!("cannot create {}", output.display()))?;
    let lock = output.join(".lock");
    let file = File::create(&lock).with_context(|| format!("cannot write {}", lock.display()))?;
    // Two processes that build into the same folder take turns.
    file.lock().with_context(|| format!("cannot lock {}", lock.display()))?;
    let seconds = workspace.seconds()?;
    let libraries = libraries::read_installed(workspace.platform)?;
    let shared = layer::pack(&files::shared(&libraries)?, seconds, options.profile)?;
    let extras = sbom::extras(workspace, &libraries)?;
    let image = |program: Program| {
        one(workspace, program, options, &extras, &shared, seconds)
            .with_context(|| format!("cannot build the image of {}", program.name))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = programs.iter().map(|program| scope.spawn(|| image(*program))).collect();
        let built = threads
            .into_iter()
            .map(|it| it.join().map_err(|_| anyhow!("a thread has panicked"))?);
        built.collect()
    })
}

fn one(
    workspace: &Workspace,
    program: Program,
    options: &Options,
    extras: &[sbom::Extra],
    shared: &Layer,
    seconds: u64,
) -> Result<Built> {
    let executable = compile::find(workspace, program, options.profile)?;
    libraries::check(workspace.platform, program.name, &executable::needed(&executable)?)?;
    let (crates, root) = dependencies::of(workspace, program)?;
    let created = workspace.time.to_string();
    let sbom = sbom::cyclonedx(&crates, root, extras, &created)?;
    let work = tempfile::tempdir_in(&options.output)?;
    let stripped = executable::strip(&executable, &sbom::auditable(&crates, root)?, work.path())?;
    let notices = notices::of(&crates)?;
    let own = layer::pack(
        &files::own(program.name, stripped.program, sbom, notices),
        seconds,
        options.profile,
    )?;
    let layers = [shared.clone(), own];

    let layout = options.output.join(program.name);
    let own_crate = &crates[root];
    let description = Description {
        name: program.name,
        version: own_crate.version.clone(),
        labels: labels(
            workspace,
            program,
            &own_crate.version,
            &sbom::licenses(&crates, extras)?,
            options,
        ),
        created,
        platform: workspace.platform,
    };
    let configuration = layout::json(&configuration::configuration(&description, &layers)?)?;
    let blobs = layers.iter();
    let artifact = Artifact {
        tag: &description.version,
        platform: Some(description.platform),
        config: Blob::new(MediaType::ImageConfig, &configuration),
        layers: blobs
            .map(|it| Blob::new(MediaType::ImageLayerGzip, &it.compressed))
            .collect(),
        annotations: description.labels.clone(),
    };
    let digest = layout::write(&layout, &artifact)?;
    let debug = layout::beside(&layout, "debug")?;
    move_file(&stripped.debug, &debug)?;
    Ok(Built {
        name: program.name,
        layout,
        debug,
        digest,
        compressed: layers.iter().map(|it| it.compressed.len()).sum(),
        uncompressed: layers.iter().map(|it| it.size).sum(),
    })
}

fn labels(
    workspace: &Workspace,
    program: Program,
    version: &str,
    licenses: &str,
    options: &Options,
) -> HashMap<String, String> {
    let created = workspace.time.to_string();
    let always = [
        (ANNOTATION_TITLE, program.name),
        (ANNOTATION_DESCRIPTION, program.description),
        (ANNOTATION_VERSION, version),
        (ANNOTATION_REVISION, &workspace.revision),
        (ANNOTATION_CREATED, &created),
        (ANNOTATION_LICENSES, licenses),
    ];
    let source = options.source.as_deref().map(|it| (ANNOTATION_SOURCE, it));
    always
        .into_iter()
        .chain(source)
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn move_file(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("cannot write {}", to.display()))
}
