//! Splits a switch's program into programs of line cards.
//!
//! A modular switch is line cards around a fabric: each card has some of the ports and a link to the fabric, which
//! forwards by destination address. [`split`] derives from a program P for the whole switch one for each card, so that
//! cards and fabric together do what P does:
//!
//! ```text
//!            ┌─ arrived? ── yes ──────────────────────────────────────────────┐
//! port, link │                                                                ├─ send
//!            └─ no ── parser, ingress of P ─┬─ local? ─ yes ── egress of P ───┤
//!                                           └─ no ── carrier ─ egress of P ───┘ (to the link)
//! ```
//!
//! - A packet from one of the card's ports passes P's parser, ingress and egress there, whichever card has the port that
//!   it leaves through: egress runs on the card of the ingress.
//! - To a port of another card it goes in a *carrier*, an Ethernet header in front of the packet ([`ETHERTYPE`]), whose
//!   source is the port that it came from and whose destination is the port that it goes to ([`address`]).
//! - A packet from the link has been through all of it; the carrier's destination is its port.
//!
//! Ports keep their numbers on all cards: those of other cards are outputs that lead to the link, which is itself one
//! port more ([`Layout::link`]). Tables and all that controllers address keep their names, too.
//!
//! Registers and meters are state that all ports share. If there are several cards, packets of a program with such state
//! go to the program of the CPU ([`Split::cpu`]), which is P with carriers around; cards only carry. Counters are
//! counted on each card; their sum is what P counts.

mod reasons;
mod text;

use std::collections::BTreeSet;
use std::fmt;

use pipeline::Checked;

use crate::ast::{self, DeclarationKind, ExprKind};
use crate::compile::{self, Front};
use crate::diagnostic::{Diagnostic, Diagnostics, render};
use crate::lex::{self, Token};
use crate::preprocess;
use crate::source::Span;

/// EtherType of carriers: the second one for local experiments (IEEE 802, clause 9.2.4).
pub const ETHERTYPE: u16 = 0x88b6;
/// The carrier's bytes.
pub const CARRIER: usize = 14;
/// Number by which carriers address the CPU; no port has it, since v1model drops packets to it.
pub const CPU: u32 = 511;
/// Number of the largest port: the next one leads to controllers.
pub const LAST_PORT: u16 = 509;
/// Start of the names that split programs have of their own.
pub(crate) const OWN: &str = "linecard_";

/// The address of a port, or of the [`CPU`], in a carrier: locally administered, the number in its last two bytes.
pub fn address(port: u32) -> [u8; 6] {
    let [_, _, high, low] = port.to_be_bytes();
    [2, 0, 0, 0, high, low]
}

/// Which card has which ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Ports of each card.
    pub cards: Vec<Vec<u32>>,
    /// Number of the port, on each card, that is the link to the fabric.
    pub link: u32,
}

/// A layout that no switch can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadLayout {
    /// There are no cards, or one has no ports.
    Empty,
    /// A number that no port has, or not the link.
    Number(u32),
    /// A port is on several cards, or twice on one.
    Twice(u32),
    /// A port has the number of the link.
    Link(u32),
}

impl fmt::Display for BadLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a card has no ports"),
            Self::Number(port) => {
                write!(f, "port {port}: ports have numbers from 0 to {LAST_PORT}, the link one from 1")
            }
            Self::Twice(port) => write!(f, "port {port} is there twice; a port belongs to one card"),
            Self::Link(port) => {
                write!(f, "port {port} is the link to the fabric; give the link another number")
            }
        }
    }
}

impl std::error::Error for BadLayout {}

impl Layout {
    /// The card that has a port.
    pub fn card_of(&self, port: u32) -> Option<usize> {
        self.cards.iter().position(|ports| ports.contains(&port))
    }

    /// Checks that there is such a switch.
    pub fn check(&self) -> Result<(), BadLayout> {
        if self.cards.is_empty() || self.cards.iter().any(Vec::is_empty) {
            return Err(BadLayout::Empty);
        }
        let mut ports: Vec<u32> = self.cards.iter().flatten().copied().collect();
        let is_wrong = |port: &&u32| **port > LAST_PORT.into();
        if let Some(port) = ports.iter().chain([&self.link]).find(is_wrong).or((self.link == 0).then_some(&0))
        {
            return Err(BadLayout::Number(*port));
        }
        if ports.contains(&self.link) {
            return Err(BadLayout::Link(self.link));
        }
        ports.sort_unstable();
        match ports.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(BadLayout::Twice(pair[0])),
            None => Ok(()),
        }
    }
}

/// Why packets go to the CPU's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// The state that cards would have to share.
    pub state: String,
    /// Its declaration.
    pub span: Span,
}

/// The programs of cards and CPU.
#[derive(Debug, Clone)]
pub struct Split {
    /// Source text for each card, in the order of the layout.
    pub cards: Vec<String>,
    /// Source text for the CPU, if packets go there.
    pub cpu: Option<String>,
    /// Why.
    pub reasons: Vec<Reason>,
}

/// The parts of a program for v1model that split programs take over.
#[derive(Debug)]
struct Parts {
    /// Its text without `main`.
    text: String,
    /// Constructor calls: parser, checksum verification, ingress, egress, checksum update, deparser.
    calls: [Part; 6],
    /// Types of headers and metadata.
    headers: String,
    metadata: String,
    /// Whether packets may pass again as they were deparsed, with a carrier in front.
    recirculates: bool,
    /// Whether it may choose classes.
    classes: bool,
    /// Whether ports have a type of their own.
    port_type: bool,
}

/// A part of the package that the program is.
#[derive(Debug)]
struct Part {
    /// Name of the parser or control.
    name: String,
    /// The constructor's call.
    call: String,
}

/// Splits a program for the architecture v1model.
///
/// # Errors
/// What cannot be split, each at its place.
pub fn split(front: &Front, layout: &Layout) -> Result<Split, Diagnostics> {
    let parts = Parts::of(front)?;
    let reasons = match layout.cards.len() {
        1 => Vec::new(),
        _ => reasons::of(front),
    };
    let through_cpu = !reasons.is_empty();
    let card = |ports: &Vec<u32>| match through_cpu {
        true => text::carrying_card(ports, layout.link, parts.port_type, parts.classes),
        false => text::card(&parts, ports, layout.link),
    };
    let cards = layout.cards.iter().map(card).collect();
    Ok(Split { cards, cpu: through_cpu.then(|| text::cpu(&parts, layout.link)), reasons })
}

impl Parts {
    fn of(front: &Front) -> Result<Self, Diagnostics> {
        let tree = &front.tree;
        let main = tree.declarations.iter().find(|declaration| declaration.name.text == "main");
        let Some((main, DeclarationKind::Instance(instance))) = main.map(|main| (main, &main.kind)) else {
            return Err(only(Diagnostic::error(Span::default(), "the program has no `main`")));
        };
        let architecture = front.sources.text(instance.ty.span);
        if architecture.split('<').next().map(str::trim) != Some("V1Switch") {
            let text = format!("a program for `{architecture}` cannot be split");
            return Err(only(Diagnostic::error(main.span, text).expected("expected a `V1Switch`")));
        }
        let own: Vec<&Token> = front.tokens.iter().filter(|token| is_own(front, token.span)).collect();
        let refused = refusals(&own);
        if refused.errors() > 0 {
            return Err(refused);
        }
        let mut calls = Vec::new();
        for (at, param) in ["p", "vr", "ig", "eg", "ck", "dep"].into_iter().enumerate() {
            let named = instance.args.iter().find(|arg| arg.name.as_ref().is_some_and(|n| n.text == param));
            let Some(arg) = named.or_else(|| instance.args.get(at)) else { continue };
            calls.extend(part(front, &arg.value));
        }
        let text = lex::text(own.into_iter().filter(|token| !contains(main.span, token.span)));
        let Ok(calls) = <[Part; 6]>::try_from(calls) else {
            let text = "`main` does not construct a parser, four controls and a deparser";
            return Err(only(Diagnostic::error(main.span, text)));
        };
        let parser = tree.declarations.iter().find_map(|declaration| match &declaration.kind {
            DeclarationKind::Parser(parser) if declaration.name.text == calls[0].name => Some(parser),
            _ => None,
        });
        let types = parser.map(|parser| &parser.signature.params[..]);
        let Some([_, headers, metadata, ..]) = types else {
            let text = format!("`{}` is no parser of this program", calls[0].name);
            return Err(only(Diagnostic::error(main.span, text)));
        };
        let own: Vec<&Token> = front.tokens.iter().filter(|token| is_own(front, token.span)).collect();
        let uses = |word: &str| own.iter().any(|token| token.is(word));
        Ok(Self {
            text,
            calls,
            headers: type_text(front, headers.ty.span),
            metadata: type_text(front, metadata.ty.span),
            recirculates: ["recirculate", "recirculate_preserving_field_list"].into_iter().any(uses),
            classes: chooses_class(&own),
            port_type: tree.declarations.iter().any(|d| d.name.text == "PortId_t" && !is_own(front, d.span)),
        })
    }
}

/// Whether a program names the class of its packets: `priority` of a parameter of the type `standard_metadata_t`.
fn chooses_class(tokens: &[&Token]) -> bool {
    let pairs = tokens.iter().zip(tokens.iter().skip(1));
    let names: BTreeSet<&str> =
        pairs.filter(|(ty, _)| ty.is("standard_metadata_t")).map(|(_, name)| &*name.text).collect();
    tokens.windows(3).any(|three| match three {
        [name, dot, field] => names.contains(&*name.text) && dot.is(".") && field.is("priority"),
        _ => false,
    })
}

fn only(error: Diagnostic) -> Diagnostics {
    let mut diagnostics = Diagnostics::default();
    diagnostics.push(error);
    diagnostics
}

/// Whether a place is in a file of the program, not in one that the front end brings along.
fn is_own(front: &Front, span: Span) -> bool {
    front.sources.get(span.file).is_some_and(|file| !file.name.starts_with('<'))
}

fn contains(outer: Span, inner: Span) -> bool {
    outer.file == inner.file && outer.start <= inner.start && inner.end <= outer.end
}

/// The text of a type, macros expanded.
fn type_text(front: &Front, span: Span) -> String {
    lex::text(front.tokens.iter().filter(|token| contains(span, token.span))).trim().to_owned()
}

/// Uses of words that split programs cannot contain.
fn refusals(tokens: &[&Token]) -> Diagnostics {
    let mut refusals = Diagnostics::default();
    let behind = tokens.iter().skip(1).map(Some).chain([None]);
    for (token, next) in tokens.iter().zip(behind) {
        let followed_by = |text: &str| next.is_some_and(|next| next.is(text));
        let (message, expected): (String, String) = match &*token.text {
            "truncate" if followed_by("(") => (
                "a program with `truncate` cannot be split".into(),
                "it would count the carrier's bytes, too".into(),
            ),
            "controller_header" => (
                "a program with headers for controllers cannot be split".into(),
                "cards would put carriers in front of them".into(),
            ),
            port @ ("ingress_port" | "egress_port") if followed_by("=") => (
                format!("a program that sets `{port}` cannot be split"),
                "the carrier says where a packet comes from and goes to".into(),
            ),
            name if token.is_word() && name.starts_with(OWN) => (
                format!("`{name}` is a name of split programs"),
                format!("expected one that does not begin with `{OWN}`"),
            ),
            _ => continue,
        };
        refusals.push(Diagnostic::error(token.span, message).expected(expected));
    }
    refusals
}

/// The parser or control that an argument of the package constructs.
fn part(front: &Front, value: &ast::Expr) -> Option<Part> {
    let ExprKind::Call(callee, ..) = &value.kind else { return None };
    let ExprKind::Name { name, .. } = &callee.kind else { return None };
    let call = lex::text(front.tokens.iter().filter(|token| contains(value.span, token.span)));
    Some(Part { name: name.text.clone(), call: call.trim().to_owned() })
}

/// Lowers the text of a split program.
///
/// # Errors
/// It is wrong: the diagnostics.
pub fn lower(name: &str, text: &str) -> Result<Checked, String> {
    let mut front = compile::text(name, text, &preprocess::Options::default());
    let lowered = front.lower();
    lowered.ok_or_else(|| render(&front.sources, &front.diagnostics, false))
}
