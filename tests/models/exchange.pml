/* Rows that change nodes between two fragments, and then go to the caller: 2 senders that may have rows
 * for either of 2 receivers, over channels that hold CAP rows each, and merges by tag at the
 * receivers and at the caller (ordstream/fragments/channels.py, merging.py, live_node.py). A row is
 * its tag, 1..N: the source gives them out in order, to any sender, for any receiver. A low says that
 * nothing below it comes any more. Lows are always heard: sockets are always read (wire.py); what can
 * make a sender wait is a channel without credit.
 *
 * Checked: order at the receivers and at the caller, everything arrives, no invalid end state (no deadlock).
 * Mutants: WITH_ROWS   a low travels only with rows: a receiver that gets none hears nothing
 *          NO_IDLE     a sender without rows does not tell how far the source is
 *          SHARED      a receiver has one buffer for all its senders: rows that are ahead fill it
 *          EAGER       a low runs ahead of a row that the sender holds (order)
 *          NO_LAST     the end of a sender is no low
 */
#ifndef N
#define N 5
#endif
#ifndef CAP
#define CAP 1
#endif
#define END (N + 1)

byte given = 1;       /* the next row of the source */
byte owner = 0;       /* who gets it: 1 or 2; 0: not chosen yet */
/* channel k leads from sender k / 2 to receiver k % 2; channel 4 + r from receiver r to the caller */
chan rows[6] = [CAP] of { byte };
byte low[6];          /* as the receiver knows it */
byte seen[3];         /* the last row of each receiver, and of the caller */

/* the first row on a channel, or END: kept beside it, so that guards can look at it */
byte head[6] = END;

inline raise(k, to)
{
    if
    :: low[k] < to -> low[k] = to
    :: else
    fi
}

inline put(k, row)
{
    rows[k] ! row;
    if
    :: head[k] == END -> head[k] = row
    :: else
    fi;
    raise(k, row + 1)
}

inline pop(k, row)
{
    rows[k] ? row;
    if
    :: len(rows[k]) > 0 -> rows[k] ? <head[k]>
    :: else -> head[k] = END
    fi
}

#ifdef SHARED
#define CREDIT(s, r) (len(rows[r]) + len(rows[2 + r]) < CAP)
#else
#define CREDIT(s, r) (len(rows[2 * s + r]) < CAP)
#endif

proctype sender(byte s)
{
    byte row, r;
    do
    :: atomic { given <= N && owner == 0 -> if :: owner = 1 :: owner = 2 fi }
    :: atomic {
        given <= N && owner == s + 1 ->
        row = given;
        given++;
        owner = 0;
        if :: r = 0 :: r = 1 fi
       };
        /* it holds the row: nothing below it comes */
#ifdef EAGER
        atomic { raise(2 * s, given); raise(2 * s + 1, given) };
#else
#ifndef WITH_ROWS
        atomic { raise(2 * s, row); raise(2 * s + 1, row) };
#endif
#endif
        atomic { CREDIT(s, r) -> put(2 * s + r, row); row = 0; r = 0 }
#ifndef WITH_ROWS
#ifndef NO_IDLE
    :: atomic { low[2 * s] < given || low[2 * s + 1] < given ->
                raise(2 * s, given); raise(2 * s + 1, given) }
#endif
#endif
    :: atomic { given > N -> break }
    od;
#ifndef NO_LAST
    atomic { low[2 * s] = END + 1; low[2 * s + 1] = END + 1 }
#endif
}

#define LOWER(x, y) ((x) < (y) -> (x) : (y))
#define FRONT LOWER(head[a], head[b])
#define BOUND LOWER(low[a], low[b])

/* Merges channels a and b: receivers 0 and 1, and the caller (2). */
proctype merge(byte me; byte a; byte b)
{
    byte row;
    do
    :: atomic {
        FRONT <= N && FRONT < BOUND ->
        if
        :: head[a] < head[b] -> pop(a, row)
        :: else -> pop(b, row)
        fi;
        assert(row > seen[me]);
        seen[me] = row;
        if
        :: me < 2 -> raise(4 + me, row)    /* it holds the row, also where the caller has no room */
        :: else -> row = 0
        fi
       };
        if
        :: me < 2 -> atomic { len(rows[4 + me]) < CAP -> put(4 + me, row); row = 0 }
        :: else
        fi
    :: atomic { me < 2 && BOUND <= END && low[4 + me] < LOWER(FRONT, BOUND) ->
                low[4 + me] = LOWER(FRONT, BOUND) }
    :: atomic { FRONT == END && BOUND > END -> break }
    od;
    if
    :: me < 2 -> low[4 + me] = END + 1
    :: else -> assert(seen[2] == N && seen[0] <= N)
    fi
}

init { atomic { run sender(0); run sender(1); run merge(0, 0, 2); run merge(1, 1, 3); run merge(2, 4, 5) } }
