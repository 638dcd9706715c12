//! `mswitch top`: ports and workers, live.
//!
//! - [`model`] holds the rates between two replies and the viewer's choices: order, filter, pause;
//! - [`keys`] maps keys to changes of the model;
//! - [`screen`] renders a model as lines for a width and a height, a pure function on top of [`layout`];
//! - this module feeds samples and keys to the model, draws its lines, and always restores the terminal.

mod keys;
mod layout;
mod model;
mod screen;

use std::io::IsTerminal;
use std::time::Duration;

use control::client::Client;
use control::proto;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::cli::{Output, TopArgs};
use crate::failure::Failure;
use keys::Next;
use model::{Model, Sample};

/// Runs until a key or a signal ends the view; with `--once` prints one interval as text.
pub(crate) async fn run(client: &mut Client, args: TopArgs) -> Result<(), Failure> {
    let mut model = Model::new(args.bridge.clone());
    let interval = Duration::from_secs_f64(args.interval);
    if args.once {
        let earlier = sample(client).await?;
        known(&args.bridge, &earlier)?;
        tokio::time::sleep(interval).await;
        model.update(&earlier, &sample(client).await?);
        return crate::commands::answer(Output { json: args.json }, &model.report(), |_| {
            screen::plain(&model)
        });
    }
    if !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
        return Err(Failure::new(
            "`mswitch top` needs a terminal; `mswitch top --once` prints one table, \
             `mswitch port stats --watch` prints one each second",
        ));
    }
    let first = sample(client).await?;
    known(&args.bridge, &first)?;
    let mut screen = Screen(ratatui::try_init()?);
    watch(client, &mut screen.0, model, first, interval).await
}

/// The terminal. Dropping it restores the previous mode, and so does ratatui's panic hook.
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

async fn watch(
    client: &mut Client,
    terminal: &mut DefaultTerminal,
    mut model: Model,
    mut earlier: Sample,
    interval: Duration,
) -> Result<(), Failure> {
    let mut keys = events();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        terminal.draw(|frame| screen::draw(frame, &mut model))?;
        tokio::select! {
            _ = ticks.tick() => {
                let now = sample(client).await?;
                if !model.paused {
                    model.update(&earlier, &now);
                }
                earlier = now;
            }
            event = keys.recv() => match event {
                Some(Ok(Event::Key(key))) => match keys::press(&mut model, key) {
                    Next::Stay => {}
                    Next::Quit => return Ok(()),
                },
                // The size changed: the loop draws again.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            },
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => return Ok(()),
        }
    }
}

/// Events of the terminal. Reading blocks, so a thread reads; it ends with the process.
fn events() -> mpsc::UnboundedReceiver<std::io::Result<Event>> {
    let (send, receive) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        loop {
            let event = event::read();
            let failed = event.is_err();
            if send.send(event).is_err() || failed {
                return;
            }
        }
    });
    receive
}

async fn sample(client: &mut Client) -> Result<Sample, Failure> {
    let ports = client.list_ports(proto::ListPortsRequest::default()).await?.into_inner();
    let workers = client.list_workers(proto::ListWorkersRequest {}).await?.into_inner();
    let bridges = client.list_bridges(proto::ListBridgesRequest::default()).await?.into_inner();
    let bridges = bridges.bridges.into_iter().map(|bridge| bridge.name).collect();
    Ok(Sample { ports, workers, bridges })
}

/// Refuses a bridge that does not exist at the start.
fn known(bridge: &Option<String>, sample: &Sample) -> Result<(), Failure> {
    match bridge {
        Some(name) if !sample.bridges.contains(name) => Err(Failure::new(format_args!(
            "there is no bridge \"{name}\"; `mswitch bridge list` lists the bridges"
        ))),
        _ => Ok(()),
    }
}
