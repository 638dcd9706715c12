//! Renders a model as lines for a terminal of any size, and as plain text.
//!
//! Invariant: the lines fit the screen, in width and in number.

use ratatui::Frame;
use ratatui::style::{Modifier, Style};

use super::layout::{Cells, Column, shorten, table};
use super::model::{Class, Model, Order, Port, Worker};
use crate::render::units;

const WORKERS: [Column; 9] = [
    Column { title: "WORKER", cells: Cells::Number, rank: 0 },
    Column { title: "CPU", cells: Cells::Number, rank: 1 },
    Column { title: "BUSY", cells: Cells::Number, rank: 0 },
    Column { title: "PKT/S", cells: Cells::Number, rank: 0 },
    Column { title: "PKT/BATCH", cells: Cells::Number, rank: 2 },
    Column { title: "CYCLES/PKT", cells: Cells::Number, rank: 2 },
    Column { title: "WAKE-UPS/S", cells: Cells::Number, rank: 1 },
    Column { title: "NOTIFIED/S", cells: Cells::Number, rank: 3 },
    Column { title: "QUEUES", cells: Cells::Number, rank: 4 },
];

const PORTS: [Column; 13] = [
    Column { title: "BRIDGE", cells: Cells::Words(6), rank: 3 },
    Column { title: "PORT", cells: Cells::Words(12), rank: 0 },
    Column { title: "TYPE", cells: Cells::Words(4), rank: 7 },
    Column { title: "LINK", cells: Cells::Words(4), rank: 2 },
    Column { title: "RX PKT/S", cells: Cells::Number, rank: 0 },
    Column { title: "RX BIT/S", cells: Cells::Number, rank: 1 },
    Column { title: "TX PKT/S", cells: Cells::Number, rank: 0 },
    Column { title: "TX BIT/S", cells: Cells::Number, rank: 1 },
    Column { title: "DROPS/S", cells: Cells::Number, rank: 0 },
    Column { title: "DROPPED", cells: Cells::Number, rank: 6 },
    Column { title: "RX/BATCH", cells: Cells::Number, rank: 5 },
    Column { title: "TX/BATCH", cells: Cells::Number, rank: 5 },
    Column { title: "REASON", cells: Cells::Words(16), rank: 8 },
];

const CLASSES: [Column; 9] = [
    Column { title: "BRIDGE", cells: Cells::Words(6), rank: 3 },
    Column { title: "PORT", cells: Cells::Words(12), rank: 0 },
    Column { title: "CLASS", cells: Cells::Number, rank: 0 },
    Column { title: "PKT/S", cells: Cells::Number, rank: 0 },
    Column { title: "BIT/S", cells: Cells::Number, rank: 1 },
    Column { title: "WAITING", cells: Cells::Number, rank: 0 },
    Column { title: "MEAN WAIT", cells: Cells::Number, rank: 2 },
    Column { title: "DROPS/S", cells: Cells::Number, rank: 0 },
    Column { title: "MARKS/S", cells: Cells::Number, rank: 3 },
];

/// Returns the column of [`PORTS`] that an order sorts by.
fn ordered_by(order: Order) -> &'static str {
    match order {
        Order::Name => "PORT",
        Order::RxPackets => "RX PKT/S",
        Order::RxBits => "RX BIT/S",
        Order::TxPackets => "TX PKT/S",
        Order::TxBits => "TX BIT/S",
        Order::Drops => "DROPS/S",
    }
}

/// Kind of a line, which determines its style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Text,
    Header,
    /// A port that is down.
    Down,
    /// A port that drops packets.
    Dropping,
}

impl Role {
    fn style(self) -> Style {
        match self {
            Role::Text => Style::new(),
            Role::Header => Style::new().add_modifier(Modifier::REVERSED),
            Role::Down => Style::new().add_modifier(Modifier::DIM),
            Role::Dropping => Style::new().add_modifier(Modifier::BOLD),
        }
    }
}

/// Draws the frame, and limits the model's scroll position to the list.
pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let lines = lines(model, width, height);
    let buffer = frame.buffer_mut();
    for (y, (text, role)) in (area.y..).zip(lines.iter().take(height)) {
        // The bar of a header spans the screen.
        let text = if *role == Role::Header { format!("{text:<width$}") } else { text.clone() };
        buffer.set_stringn(area.x, y, text, width, role.style());
    }
}

/// Renders the view as text, as wide as the terminal, or of any width without a terminal.
pub(super) fn plain(model: &Model) -> String {
    let width = rustix::termios::tcgetwinsize(std::io::stdout())
        .map_or(usize::MAX, |size| if size.ws_col > 0 { size.ws_col.into() } else { 80 });
    let mut lines = vec![shorten(&summary(model), width), String::new()];
    lines.extend(workers(&model.workers, width));
    lines.push(String::new());
    lines.extend(ports(model, &model.visible(), width));
    let waiting = model.classes();
    if !waiting.is_empty() {
        lines.push(String::new());
        lines.extend(classes(&waiting, width));
    }
    lines.join("\n") + "\n"
}

/// Returns at most `height` lines of at most `width` characters: summary, workers, as many ports or classes as fit,
/// keys.
fn lines(model: &mut Model, width: usize, height: usize) -> Vec<(String, Role)> {
    let mut top = vec![(shorten(&summary(model), width), Role::Text), (String::new(), Role::Text)];
    // Workers get at most a third of the screen; ports matter more.
    let room = (height / 3).max(2);
    let mut threads = workers(&model.workers, width).into_iter();
    top.extend(threads.next().map(|header| (header, Role::Header)));
    let threads: Vec<_> = threads.collect();
    let shown = if threads.len() < room { threads.len() } else { room.saturating_sub(2) };
    top.extend(threads.iter().take(shown).map(|line| (line.clone(), Role::Text)));
    if shown < threads.len() {
        top.push((shorten(&format!("… and {} more", threads.len() - shown), width), Role::Text));
    }
    top.push((String::new(), Role::Text));

    let (visible, waiting) = (model.visible(), model.classes());
    let all = if model.by_class { waiting.len() } else { visible.len() };
    // Header and footer.
    let room = height.saturating_sub(top.len() + 2);
    let scroll = model.scroll.min(all.saturating_sub(room));
    let shown = room.min(all - scroll);
    let mut of_page: Vec<(String, Role)> = if model.by_class {
        let page: Vec<_> = waiting.into_iter().skip(scroll).take(room).collect();
        let roles = page.iter().map(|(_, class)| class_role(class));
        classes(&page, width).into_iter().zip([Role::Header].into_iter().chain(roles)).collect()
    } else {
        let page: Vec<&Port> = visible.into_iter().skip(scroll).take(room).collect();
        let roles = page.iter().map(|port| role(port));
        ports(model, &page, width).into_iter().zip([Role::Header].into_iter().chain(roles)).collect()
    };
    top.append(&mut of_page);
    if all == 0 {
        let nothing = if model.by_class { "no classes: packets wait at no port" } else { "no ports" };
        top.push((shorten(nothing, width), Role::Text));
    }
    let footer = shorten(&footer(model, scroll, shown, all, width), width);
    top.truncate(height.saturating_sub(1));
    top.resize(height.saturating_sub(1), (String::new(), Role::Text));
    top.push((footer, Role::Text));
    model.scroll = scroll;
    top
}

fn role(port: &Port) -> Role {
    match port {
        _ if port.link != "up" => Role::Down,
        _ if port.drops_per_second() > 0.0 => Role::Dropping,
        _ => Role::Text,
    }
}

fn class_role(class: &Class) -> Role {
    if class.drops_per_second > 0.0 { Role::Dropping } else { Role::Text }
}

fn summary(model: &Model) -> String {
    if model.seconds <= 0.0 {
        return "mswitch top: counting…".into();
    }
    let ports = model.visible();
    let up = ports.iter().filter(|port| port.link == "up").count();
    let sum = |of: fn(&Port) -> f64| ports.iter().map(|port| of(port)).sum::<f64>();
    format!(
        "mswitch top: {}{up} of {} ports up, rx {}, {}, dropped {}{}",
        model.bridge.as_ref().map_or_else(String::new, |bridge| format!("{bridge}, ")),
        ports.len(),
        units::packet_rate(sum(|port| port.rx.packets_per_second)),
        units::bit_rate(sum(|port| port.rx.bits_per_second)),
        units::packet_rate(sum(Port::drops_per_second)),
        if model.paused { ", PAUSED" } else { "" },
    )
}

/// Keys with their current settings, as many as fit.
fn footer(model: &Model, scroll: usize, shown: usize, all: usize, width: usize) -> String {
    let mut parts = vec![
        "q quit".to_owned(),
        format!("p {}", if model.paused { "continue" } else { "pause" }),
        format!("s sort: {}", ordered_by(model.order)),
        "r reverse".to_owned(),
        format!("b bridge: {}", model.bridge.as_deref().unwrap_or("all")),
    ];
    if shown < all {
        parts.push(format!("↑↓ {}-{} of {all}", scroll + 1, scroll + shown));
    }
    parts.push(format!("c {}", if model.by_class { "ports" } else { "classes" }));
    let mut text = String::new();
    for part in parts {
        let more = if text.is_empty() { part } else { format!("  {part}") };
        if text.chars().count() + more.chars().count() > width {
            break;
        }
        text.push_str(&more);
    }
    text
}

fn workers(workers: &[Worker], width: usize) -> Vec<String> {
    let row = |worker: &Worker| {
        vec![
            worker.index.to_string(),
            worker.cpu.map_or_else(|| "any".into(), |cpu| cpu.to_string()),
            units::percent(worker.busy_share),
            units::short(worker.packets_per_second),
            units::ratio(worker.packets_per_batch),
            units::ratio(worker.cycles_per_packet),
            units::short(worker.wakeups_per_second),
            units::short(worker.notifications_per_second),
            worker.queues.to_string(),
        ]
    };
    let titles = WORKERS.map(|column| column.title.to_owned());
    table(&WORKERS, &titles, &workers.iter().map(row).collect::<Vec<_>>(), width)
}

fn ports(model: &Model, ports: &[&Port], width: usize) -> Vec<String> {
    let row = |port: &&Port| {
        vec![
            port.bridge.clone(),
            port.port.clone(),
            port.r#type.clone(),
            port.link.clone(),
            units::short(port.rx.packets_per_second),
            units::short(port.rx.bits_per_second),
            units::short(port.tx.packets_per_second),
            units::short(port.tx.bits_per_second),
            units::short(port.drops_per_second()),
            units::count(port.dropped),
            units::ratio(port.rx.packets_per_batch),
            units::ratio(port.tx.packets_per_batch),
            // The reason may contain text from a client.
            port.reason.chars().map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect(),
        ]
    };
    // `▼` marks descending order: the largest number, or Z, at the top.
    let falls = (model.order == Order::Name) == model.reversed;
    let titles = PORTS.map(|column| match column.title {
        title if title == ordered_by(model.order) => format!("{}{title}", if falls { '▼' } else { '▲' }),
        title => title.to_owned(),
    });
    table(&PORTS, &titles, &ports.iter().map(row).collect::<Vec<_>>(), width)
}

fn classes(classes: &[(&Port, &Class)], width: usize) -> Vec<String> {
    let row = |(port, class): &(&Port, &Class)| {
        vec![
            port.bridge.clone(),
            port.port.clone(),
            class.class.to_string(),
            units::short(class.packets_per_second),
            units::short(class.bits_per_second),
            units::count(class.waiting),
            // None has left that waited.
            Some(class.mean_wait_seconds).filter(|mean| *mean > 0.0).map_or_else(|| "-".into(), units::delay),
            units::short(class.drops_per_second),
            units::short(class.marks_per_second),
        ]
    };
    let titles = CLASSES.map(|column| column.title.to_owned());
    table(&CLASSES, &titles, &classes.iter().map(row).collect::<Vec<_>>(), width)
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::model::tests::{model, with_classes};
    use super::*;

    /// Draws the screen; returns its lines without trailing blanks.
    fn screen(model: &mut Model, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    fn busy() -> Model {
        model(&[
            ("br0", "vm1", 2_480_000, 1_000_000, 0),
            ("br0", "a-virtual-machine-with-a-long-name", 1_200, 2_000_000, 3_000),
            ("upstream-bridge", "uplink", 0, 0, 0),
        ])
    }

    #[test]
    fn eighty_columns() {
        assert_eq!(
            screen(&mut busy(), 80, 12),
            [
                "mswitch top: 2 of 3 ports up, rx 1.24 Mpps, 635 Mbit/s, dropped 1.50 kpps",
                "",
                "WORKER  CPU    BUSY   PKT/S  PKT/BATCH  CYCLES/PKT  WAKE-UPS/S  NOTIFIED/S",
                "     0    3  25.0 %  16.0 k       16.0     31250.0          40         900",
                "",
                "BRIDGE      PORT          LINK  ▼RX PKT/S  RX BIT/S  TX PKT/S  TX BIT/S  DROPS/S",
                "br0         vm1           up       1.24 M     635 M     500 k    6.00 G        0",
                "br0         a-virtual-m…  up          600     307 k    1.00 M    12.0 G   1.50 k",
                "upstream-…  uplink        down          0         0         0         0        0",
                "",
                "",
                "q quit  p pause  s sort: RX PKT/S  r reverse  b bridge: all  c classes",
            ]
        );
    }

    #[test]
    fn two_hundred_columns() {
        assert_eq!(
            screen(&mut busy(), 200, 11),
            [
                "mswitch top: 2 of 3 ports up, rx 1.24 Mpps, 635 Mbit/s, dropped 1.50 kpps",
                "",
                "WORKER  CPU    BUSY   PKT/S  PKT/BATCH  CYCLES/PKT  WAKE-UPS/S  NOTIFIED/S  QUEUES",
                "     0    3  25.0 %  16.0 k       16.0     31250.0          40         900       0",
                "",
                "BRIDGE           PORT                                TYPE   LINK  ▼RX PKT/S  RX BIT/S  TX PKT/S  \
                 TX BIT/S  DROPS/S  DROPPED  RX/BATCH  TX/BATCH  REASON",
                "br0              vm1                                 memif  up       1.24 M     635 M     500 k    \
                 6.00 G        0        0       8.0       8.0",
                "br0              a-virtual-machine-with-a-long-name  memif  up          600     307 k    1.00 M    \
                 12.0 G   1.50 k    3,000       8.0       8.0",
                "upstream-bridge  uplink                              memif  down          0         0         0         \
                 0        0        0         -         -  no client has connected yet",
                "",
                "q quit  p pause  s sort: RX PKT/S  r reverse  b bridge: all  c classes",
            ]
        );
    }

    #[test]
    fn classes_instead_of_ports() {
        let mut model = with_classes();
        model.turn();
        let lines = screen(&mut model, 100, 12);
        assert_eq!(
            lines[5..7],
            [
                "BRIDGE  PORT  CLASS   PKT/S   BIT/S  WAITING  MEAN WAIT  DROPS/S  MARKS/S",
                "b       p         5  1.00 k  8.00 M       40     250 µs      200       10",
            ]
        );
        assert!(lines[11].ends_with("b bridge: all  c ports"), "{lines:#?}");
        assert!(plain(&model).contains("DROPPED") && plain(&model).contains("MEAN WAIT"));
        let mut none = busy();
        none.turn();
        assert_eq!(screen(&mut none, 80, 12)[6], "no classes: packets wait at no port");
        assert!(!plain(&none).contains("MEAN WAIT"));
    }

    #[test]
    fn lines_fit_any_size() {
        let mut with_classes = with_classes();
        with_classes.turn();
        fits_any_size(with_classes);
        fits_any_size(busy());
    }

    fn fits_any_size(mut model: Model) {
        model.paused = true;
        for width in 1..120 {
            for height in 1..30 {
                for (line, _) in lines(&mut model, width, height) {
                    assert!(line.chars().count() <= width, "{width}x{height}: {line}");
                }
                assert_eq!(lines(&mut model, width, height).len(), height, "{width}x{height}");
                screen(&mut model, width as u16, height as u16);
            }
        }
    }

    #[test]
    fn scrolling_ends_at_the_last_port() {
        let names: Vec<String> = (0..50).map(|i| format!("p{i:02}")).collect();
        let ports: Vec<_> = names.iter().map(|name| ("b", name.as_str(), 16, 16, 0)).collect();
        let mut model = model(&ports);
        model.order = Order::Name;
        model.scroll = 1000;
        let lines = screen(&mut model, 80, 24);
        assert_eq!(model.scroll, 50 - 17);
        assert!(lines[22].starts_with("b       p49"), "{lines:#?}");
        assert!(lines[23].ends_with("↑↓ 34-50 of 50"), "{lines:#?}");
        assert!(lines[5].contains("▲PORT"), "{lines:#?}");
    }

    #[test]
    fn many_workers_leave_room_for_ports() {
        let mut model = busy();
        model.workers = vec![model.workers[0].clone(); 64];
        let lines = screen(&mut model, 80, 24);
        assert_eq!(lines[9], "… and 58 more");
        assert!(lines[12].contains("  vm1  "), "{lines:#?}");
    }

    #[test]
    fn text_from_a_client_cannot_move_the_cursor() {
        let mut model = Model::new(None);
        let mut now = super::super::model::tests::sample(2, &[("b", "p", 0, 0, 0)]);
        now.ports.ports[0].reason = "\x1b[2J über\n".into();
        model.update(&super::super::model::tests::sample(1, &[]), &now);
        let text = plain(&model);
        assert!(text.contains("?[2J ?ber?") && !text.contains('\x1b'), "{text:?}");
    }
}
