//! A list in pieces, so that one operation on a list of any length moves only a few elements.

/// The most elements of a piece.
const PIECE: usize = 512;

#[derive(Debug, Clone)]
pub(super) struct Pieces<T> {
    /// None of them is empty.
    pieces: Vec<Vec<T>>,
    len: usize,
}

impl<T> FromIterator<T> for Pieces<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut items = items.into_iter().peekable();
        let (mut pieces, mut len) = (Vec::new(), 0);
        while items.peek().is_some() {
            let piece: Vec<T> = items.by_ref().take(PIECE).collect();
            len += piece.len();
            pieces.push(piece);
        }
        Self { pieces, len }
    }
}

impl<T> IntoIterator for Pieces<T> {
    type Item = T;
    type IntoIter = std::iter::Flatten<std::vec::IntoIter<Vec<T>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.pieces.into_iter().flatten()
    }
}

impl<T> Pieces<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pieces.iter_mut().flatten()
    }

    /// The piece that holds a position, and where in it; beyond the end, the last piece.
    fn locate(&self, at: usize) -> (usize, usize) {
        let mut before = at;
        for (number, piece) in self.pieces.iter().enumerate() {
            if before < piece.len() || number + 1 == self.pieces.len() {
                return (number, before);
            }
            before -= piece.len();
        }
        (0, before)
    }

    pub(super) fn get(&self, at: usize) -> Option<&T> {
        let (piece, at) = self.locate(at);
        self.pieces.get(piece)?.get(at)
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        let (piece, at) = self.locate(at);
        self.pieces.get_mut(piece)?.get_mut(at)
    }

    /// Puts an element before the one at this position, or at the end.
    pub(super) fn insert(&mut self, at: usize, item: T) {
        if self.pieces.is_empty() {
            self.pieces.push(Vec::new());
        }
        let (number, at) = self.locate(at);
        let piece = &mut self.pieces[number];
        piece.insert(at, item);
        if piece.len() > PIECE {
            let half = piece.split_off(PIECE / 2);
            self.pieces.insert(number + 1, half);
        }
        self.len += 1;
    }

    /// Takes the element at this position, of which there is one.
    pub(super) fn remove(&mut self, at: usize) -> T {
        let (number, at) = self.locate(at);
        let piece = &mut self.pieces[number];
        let item = piece.remove(at);
        if piece.is_empty() {
            self.pieces.remove(number);
        }
        self.len -= 1;
        item
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Long enough for pieces to part and to go.
        #[test]
        fn pieces_are_one_list(start in 0..1_200usize, steps in prop::collection::vec((0..3u8, 0..1_000usize), 0..1_500)) {
            let mut list: Vec<usize> = (0..start).collect();
            let mut pieces: Pieces<usize> = list.iter().copied().collect();
            for (number, (step, place)) in steps.into_iter().enumerate() {
                let length = list.len();
                match step {
                    0 if length > 0 => prop_assert_eq!(pieces.remove(place % length), list.remove(place % length)),
                    1 if length > 0 => prop_assert_eq!(pieces.get(place % length), list.get(place % length)),
                    _ => {
                        list.insert(place % (length + 1), number);
                        pieces.insert(place % (length + 1), number);
                    }
                }
                prop_assert!(pieces.pieces.iter().all(|piece| (1..=PIECE).contains(&piece.len())));
            }
            prop_assert_eq!(pieces.len(), list.len());
            prop_assert_eq!(pieces.get(list.len()), None);
            prop_assert_eq!(pieces.into_iter().collect::<Vec<_>>(), list);
        }
    }
}
