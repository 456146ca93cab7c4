//! Exit codes as docs/bootstrap.md lists them, each by a run that ends with it.

use super::centre::DataCentre;
use super::user::User;
use super::{Report, example};
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// The single-node example, and its cluster.
const FILE: &str = "bootstrap-proxmox-single-node.yaml";

pub(super) async fn run(program: &Path, report: &mut Report) -> Result<()> {
    let file = example(FILE)?.to_string_lossy().into_owned();
    let user = User::new(program)?;
    let answer = user.run(&["rehearse", &file]).await?;
    report.check("exit code 0: ready", answer.expect(0, "rehearse").map(|_| ()))?;
    let answer = wrong_words(&user, &file).await;
    report.check("exit code 2: a wrong file or word", answer)?;
    let answer = nobody(&user).await;
    report.check("exit code 3: no such cluster", answer)?;
    let answer = refused(program, &file).await;
    report.check("exit code 4: failed, and the same command goes on", answer)?;
    let answer = too_slow(&user, &file).await;
    report.check("exit code 5: no time left", answer)?;
    let answer = interrupted(program, &file).await;
    report.check("exit codes 130 and 6: Ctrl-C, and two at once", answer)?;
    Ok(())
}

async fn wrong_words(user: &User, file: &str) -> Result<()> {
    let path = user.folder().join("wrong.yaml");
    std::fs::write(&path, "provider: proxmox\ncluster: {nmae: a}\n").context("write a wrong file")?;
    let wrong = path.to_string_lossy();
    for args in [
        &["bootstrap", "proxmox", "--config", &*wrong][..],
        &["bootstrap", "proxmox", "--config", "not-there.yaml"],
        &["bootstrap", "gcp", "--config", file],
        &["rehearse", &*wrong],
        &["bootstrap", "nowhere"],
    ] {
        user.run(args).await?.expect(2, &args.join(" "))?;
    }
    Ok(())
}

async fn nobody(user: &User) -> Result<()> {
    for args in
        [&["status", "nobody"][..], &["destroy", "nobody", "--yes"], &["kubeconfig", "nobody"], &["logs"]]
    {
        user.run(args).await?.expect(3, &args.join(" "))?;
    }
    Ok(())
}

/// A template that is not there, and then the right one.
async fn refused(program: &Path, file: &str) -> Result<()> {
    let mut user = User::new(program)?;
    let centre = DataCentre::start(&user, Path::new(file), &[]).await?;
    user.use_centre(&centre);
    let bundle = centre.bundle.to_string_lossy().into_owned();
    let bootstrap = ["bootstrap", "proxmox", "--config", file, "--bundle", &bundle];
    user.set("BUTLER_PROVIDERCONFIG_PROXMOX_TEMPLATEID", "9999");
    let answer = user.run(&bootstrap).await?;
    let said = answer.expect(4, "bootstrap without a template")?;
    ensure!(said.contains("9999") && said.contains("what to do: "), "neither what nor what to do:\n{said}");
    ensure!(centre.vms().await?.is_empty(), "a machine from no template");
    user.set("BUTLER_PROVIDERCONFIG_PROXMOX_TEMPLATEID", "9000");
    user.run(&bootstrap).await?.expect(0, "bootstrap with the right template")?;
    user.run(&["destroy", "--yes"]).await?.expect(0, "destroy")?;
    super::looks::nothing_left(&user, &centre).await?;
    centre.end().await
}

async fn too_slow(user: &User, file: &str) -> Result<()> {
    let script = user.folder().join("faults.yaml");
    std::fs::write(&script, "machines:\n  - {machine: '*', fault: never-boots}\n")
        .context("write a script")?;
    let script = script.to_string_lossy();
    user.run(&["rehearse", file, "--fault", &script, "--timeout", "2s"]).await?.expect(5, "rehearse")?;
    Ok(())
}

/// Ctrl-C in the middle; before it, a second command on the same cluster.
async fn interrupted(program: &Path, file: &str) -> Result<()> {
    let mut user = User::new(program)?;
    // In a tenth of real time, so that there is a middle.
    let centre = DataCentre::start(&user, Path::new(file), &["--speed", "0.1"]).await?;
    user.use_centre(&centre);
    let bundle = centre.bundle.to_string_lossy();
    let bootstrap = ["bootstrap", "proxmox", "--config", file, "--bundle", &bundle];
    let mut running = user.start(&bootstrap)?;
    let machine = running.until(|turn| turn["event"] == "machine").await?;
    machine.with_context(|| format!("it ended before there was a machine: {:?}", running.turns))?;
    user.run(&bootstrap).await?.expect(6, "a second bootstrap")?;
    user.run(&["destroy", "--yes"]).await?.expect(6, "destroy meanwhile")?;
    running.interrupt()?;
    running.end().await?.expect(130, "bootstrap")?;
    user.run(&["destroy", "--yes"]).await?.expect(0, "destroy of half a cluster")?;
    super::looks::nothing_left(&user, &centre).await?;
    centre.end().await
}
