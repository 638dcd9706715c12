//! Keys and their actions.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::model::{Model, Order};

/// Outcome of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Stay,
    Quit,
}

/// Ports that Page Up and Page Down scroll by.
const PAGE: usize = 10;

pub(super) fn press(model: &mut Model, key: KeyEvent) -> Next {
    if key.kind == KeyEventKind::Release {
        return Next::Stay;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Next::Quit,
        KeyCode::Char('q') | KeyCode::Esc => return Next::Quit,
        KeyCode::Char('p' | ' ') => model.paused = !model.paused,
        KeyCode::Char('s') | KeyCode::Right => model.next_order(1),
        KeyCode::Char('S') | KeyCode::Left => model.next_order(Order::ALL.len() - 1),
        KeyCode::Char('r') => model.reversed = !model.reversed,
        KeyCode::Char('b') => model.next_bridge(),
        KeyCode::Char('c') => model.turn(),
        KeyCode::Down | KeyCode::Char('j') => model.scroll = model.scroll.saturating_add(1),
        KeyCode::Up | KeyCode::Char('k') => model.scroll = model.scroll.saturating_sub(1),
        KeyCode::PageDown => model.scroll = model.scroll.saturating_add(PAGE),
        KeyCode::PageUp => model.scroll = model.scroll.saturating_sub(PAGE),
        KeyCode::Home => model.scroll = 0,
        _ => {}
    }
    Next::Stay
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::model;
    use super::*;

    #[test]
    fn keys_do_what_the_footer_says() {
        let mut model = model(&[("a", "x", 1, 1, 0), ("b", "y", 1, 1, 0)]);
        let mut press = |code| super::press(&mut model, KeyEvent::new(code, KeyModifiers::NONE));
        for code in ['p', 's', 'r', 'b', 'c'] {
            assert_eq!(press(KeyCode::Char(code)), Next::Stay);
        }
        assert_eq!(press(KeyCode::Down), Next::Stay);
        assert_eq!(press(KeyCode::Char('q')), Next::Quit);
        assert!(model.paused && model.reversed && model.by_class);
        assert_eq!((model.order, model.bridge.as_deref(), model.scroll), (Order::RxBits, Some("a"), 1));
        let end = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(super::press(&mut model, end), Next::Quit);
    }

    #[test]
    fn orders_cycle() {
        let mut model = model(&[]);
        for code in [KeyCode::Left, KeyCode::Left, KeyCode::Right] {
            press(&mut model, KeyEvent::new(code, KeyModifiers::NONE));
        }
        assert_eq!(model.order, Order::Name);
        press(&mut model, KeyEvent::new(KeyCode::Left, KeyModifiers::NONE));
        assert_eq!(model.order, Order::Drops);
    }
}
