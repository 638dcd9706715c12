//! Requests from files of flows.

use std::fs;
use std::path::Path;

use openflow::message::{
    Body, BundleAdd, BundleControl, BundleControlKind, BundleFlags, FlowMod, FlowModCommand,
};
use openflow::{Message, text};

use crate::VERSION;
use crate::failure::Failure;

/// Encoded messages, and the request behind them whose answer says that they are done.
pub(crate) struct Request {
    /// Messages that are sent before the time of the request begins.
    pub(crate) before: Vec<u8>,
    /// The messages, ended by the request.
    pub(crate) messages: Vec<u8>,
    /// Transaction id of all of them.
    pub(crate) xid: u32,
    /// Flow-mods among them.
    pub(crate) updates: usize,
    /// Whether a message answers the request.
    pub(crate) is_answer: fn(&Body) -> bool,
}

/// Requests, in order.
pub(crate) struct Requests(pub(crate) Vec<Request>);

fn encode(xid: u32, body: Body) -> Result<Vec<u8>, Failure> {
    Ok(Message::new(VERSION, xid, body).into_bytes()?)
}

/// The flows of a file, a line each.
fn flows(command: FlowModCommand, path: &Path) -> Result<Vec<FlowMod>, Failure> {
    let content = fs::read_to_string(path).map_err(|error| Failure::File { path: path.to_owned(), error })?;
    let deletes = command == FlowModCommand::DeleteStrict;
    let mut flows = Vec::new();
    for (at, line) in content.lines().enumerate() {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        // Match and priority name the flow.
        let line = match line.split_once("actions=") {
            Some((matching, _)) if deletes => matching.trim_end_matches([',', ' ']),
            _ => line,
        };
        let failed = |error: text::ParseError| Failure::Line {
            path: path.to_owned(),
            line: at + 1,
            error: error.to_string(),
        };
        flows.push(text::parse_flow(line, command, VERSION).map_err(failed)?);
    }
    Ok(flows)
}

impl Requests {
    /// Reads the flows of a file, for batches of `batch` flow-mods, each with a barrier behind it.
    pub(crate) fn read(command: FlowModCommand, path: &Path, batch: usize) -> Result<Self, Failure> {
        let request = |(at, flows): (usize, &[FlowMod])| {
            let xid = at as u32 + 1;
            let mut messages = Vec::new();
            for flow in flows {
                messages.extend(encode(xid, Body::FlowMod(Box::new(flow.clone())))?);
            }
            messages.extend(encode(xid, Body::BarrierRequest)?);
            let is_answer = |body: &Body| matches!(body, Body::BarrierReply);
            Ok(Request { before: Vec::new(), messages, xid, updates: flows.len(), is_answer })
        };
        flows(command, path)?.chunks(batch).enumerate().map(request).collect::<Result<_, _>>().map(Self)
    }

    /// Reads the flows of a file for one atomic bundle; the request is its commit.
    pub(crate) fn bundle(command: FlowModCommand, path: &Path) -> Result<Self, Failure> {
        let (xid, bundle, flags) = (1, 1, BundleFlags::ATOMIC | BundleFlags::ORDERED);
        let control = |kind| {
            let control = BundleControl { bundle, kind, flags, ..BundleControl::default() };
            encode(xid, Body::BundleControl(control))
        };
        let flows = flows(command, path)?;
        let updates = flows.len();
        let mut before = control(BundleControlKind::OpenRequest)?;
        for flow in flows {
            let message = encode(xid, Body::FlowMod(Box::new(flow)))?;
            before.extend(encode(
                xid,
                Body::BundleAdd(BundleAdd { bundle, flags, message, trailing: Vec::new() }),
            )?);
        }
        // Its reply says that the switch has read all of it.
        before.extend(control(BundleControlKind::CloseRequest)?);
        let messages = control(BundleControlKind::CommitRequest)?;
        let is_answer = |body: &Body| is_control(body, BundleControlKind::CommitReply);
        Ok(Self(vec![Request { before, messages, xid, updates, is_answer }]))
    }
}

/// Whether a message tells that a bundle is closed.
pub(crate) fn is_closed(body: &Body) -> bool {
    is_control(body, BundleControlKind::CloseReply)
}

fn is_control(body: &Body, kind: BundleControlKind) -> bool {
    matches!(body, Body::BundleControl(control) if control.kind == kind)
}
