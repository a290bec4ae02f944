//! How raw counts become scores between 0 and 100.

use crate::framework::MAX_SCORE;

/// Scales scores so that the highest becomes the maximum; turned round, the highest becomes zero.
pub fn scale_to_max(scores: &mut [i64], reverse: bool) {
    let highest = scores.iter().copied().max().unwrap_or(0).max(0);
    if highest == 0 {
        if reverse {
            scores.fill(MAX_SCORE);
        }
        return;
    }
    for score in scores {
        let scaled = MAX_SCORE * *score / highest;
        *score = if reverse { MAX_SCORE - scaled } else { scaled };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_count_decides_the_scale() {
        for (counts, reverse, expected) in [
            (vec![1, 2, 3, 4], false, vec![25, 50, 75, 100]),
            (vec![1, 2, 3, 4], true, vec![75, 50, 25, 0]),
            (vec![0, 0], false, vec![0, 0]),
            (vec![0, 0], true, vec![100, 100]),
            (vec![1000, 10, 20, 30], false, vec![100, 1, 2, 3]),
        ] {
            let mut scores = counts.clone();
            scale_to_max(&mut scores, reverse);
            assert_eq!(scores, expected, "{counts:?} {reverse}");
        }
    }
}
