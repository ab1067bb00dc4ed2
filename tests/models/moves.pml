/* Keys that change their node while rows arrive, and rows that fail meanwhile
 * (ordstream/fragments/moving.py, balancing.py, live_node.py). A row is its tag, 1..N. The caller sends it
 * to one of two nodes: HOT rows, whose keys move, to the node that has these keys; others to any. A move is
 * a marker to both nodes, in front of the next tag. The old node gives the state away when it comes there.
 * The new one holds HOT rows behind it until the state is there; other rows it goes on to process. State
 * comes over another way than rows: before the marker, or late. A move begins when the one before is done.
 *
 * With FAILS=n up to n rows fail, each in its node or in front of both (the caller then ends their rows
 * there). A node that failed tells the caller, and drops what comes; the caller gives no more rows, and
 * tells both nodes of the tag. A node that waits for state from one that failed in front of the move has no
 * rows to wait for.
 *
 * Channels with credit, lows and the merge of what nodes give are in exchange.pml; here a node ends with a
 * cut, and what counts are rows in front of the smallest.
 *
 * Checked: who processes a HOT row has the state, and they come in order; all rows in front of the first
 * failure are processed, once, and the cut is there; no state comes to a node that can't take it; no invalid
 * end state (nobody waits for ever).
 * Mutants: UNHELD        HOT rows do not wait for the state
 *          NO_EARLY      state that comes before the marker is dropped
 *          OVERLAPS      the next move begins before the one in front is done
 *          NOT_TOLD      nodes do not hear of failures
 *          FORGETS       a node that hears of a failure before it comes to the marker forgets it
 *          ANY_FAILURE   a node waits for no state once any node failed, be it behind the move
 *          LEAVES_HELD   a node that fails leaves held rows in front of the failure behind
 *          TAKES_LATE    a node at its end takes state as if it still ran
 */
#ifndef N
#define N 3
#endif
#ifndef MOVES
#define MOVES 2
#endif
#ifndef FAILS
#define FAILS 0
#endif
#define END (N + 1)
#define NONE (N + 2)

mtype = { ROW, HOT, MARK, OVER };
chan in[2] = [N + MOVES + 1] of { mtype, byte };
chan state[2] = [MOVES] of { bit };
chan told[2] = [FAILS + 1] of { byte };    /* a node failed at this tag */
chan done = [2 * MOVES] of { bit };
chan error = [2] of { byte };
chan held0 = [N] of { byte };
chan held1 = [N] of { byte };

byte cut[2] = END;
bool ended[2];
byte fails = FAILS;
byte first = END;     /* the first row that failed */
byte times[N + 1];    /* how often each row was processed */
byte holder = 0;      /* which node has the state; 2: it is under way */
byte latest = 0;      /* the last HOT row */

#define LOWER(x, y) ((x) < (y) -> (x) : (y))

/* A row is processed, or fails. */
inline process(n, tag, hot)
{
    if
    :: hot ->
        assert(holder == n && tag > latest);
        latest = tag
    :: else
    fi;
    if
    :: fails > 0 -> fails--; first = LOWER(tag, first); cut[n] = LOWER(tag, cut[n]); error ! tag
    :: times[tag]++
    fi
}

proctype node(byte n; chan held)
{
    byte tag, back = 0, failed = NONE, mark;
    bool moving = false, here = false, early = false, over = false;
    mtype kind;

    do
    :: atomic { state[n] ? _ ->
        if
        :: moving -> here = true; holder = n
#ifdef NO_EARLY
        :: else
#else
        :: else -> early = true
#endif
        fi }
    :: atomic { told[n] ? tag ->
        if
#ifdef FORGETS
        :: !moving
#endif
        :: else -> failed = LOWER(tag, failed)
        fi }
    /* it takes the next thing in, but for a move that only has to be ended */
    :: atomic { !over && cut[n] == END && !(moving && here && len(held) == 0) && len(in[n]) > 0 ->
        in[n] ? kind, tag;
        if
        :: kind == ROW -> process(n, tag, false)
        :: kind == HOT ->
            if
#ifdef UNHELD
            :: moving -> process(n, tag, true)
#else
            :: moving && here && len(held) == 0 -> process(n, tag, true)
            :: moving && !(here && len(held) == 0) -> held ! tag
#endif
            :: !moving -> process(n, tag, true)
            fi
        :: kind == MARK ->
            assert(!moving);
            if
            :: back == n -> holder = 2; state[1 - n] ! 0; done ! 0
            :: else ->
                moving = true; mark = tag; here = early; early = false;
                if
                :: here -> holder = n
                :: else
                fi
            fi;
            back = 1 - back
        :: kind == OVER -> over = true; cut[n] = LOWER(tag, cut[n])
        fi }
    /* held rows that count */
    :: atomic { moving && here && len(held) > 0 -> held ? tag;
        if
        :: tag < cut[n] -> process(n, tag, true)
        :: else
        fi }
    :: atomic { moving && here && len(held) == 0 && (cut[n] == END) -> moving = false; done ! 0 }
#ifdef ANY_FAILURE
    :: atomic { moving && !here && failed < NONE -> cut[n] = LOWER(mark, cut[n]); break }
#else
    :: atomic { moving && !here && failed < mark -> cut[n] = LOWER(mark, cut[n]); break }
#endif
    /* no row of its own, and none that is held, stands in front of the cut any more */
    :: atomic { cut[n] < END && (!moving || (here && len(held) == 0) || (len(held) == 0 && !here)) -> break }
#ifdef LEAVES_HELD
    :: atomic { cut[n] < END -> break }
#endif
    :: atomic { over && cut[n] == END && !moving -> break }
    od;
    ended[n] = true;
    do    /* whatever still comes */
    :: atomic { state[n] ? _ ->
#ifdef TAKES_LATE
        assert(false)
#else
        skip
#endif
        }
    :: told[n] ? _
    :: in[n] ? _, _
    :: ended[0] && ended[1] && len(state[n]) == 0 && len(told[n]) == 0 && len(in[n]) == 0 -> break
    od
}

proctype caller()
{
    byte given = 1, owner = 0, open = 0, moves = MOVES, n, tag;
    bool stop = false;

    do
    :: atomic { given <= N && !stop ->
        if
        :: n = 0; in[n] ! ROW, given
        :: n = 1; in[n] ! ROW, given
        :: in[owner] ! HOT, given
        fi;
        given++ }
#ifdef OVERLAPS
    :: atomic { moves > 0 && !stop ->
#else
    :: atomic { moves > 0 && !stop && open == 0 ->
#endif
        in[0] ! MARK, given; in[1] ! MARK, given;
        moves--; open = open + 2; owner = 1 - owner }
    :: atomic { done ? _ -> open-- }
    :: atomic { error ? tag -> stop = true;
#ifndef NOT_TOLD
        told[0] ! tag; told[1] ! tag
#endif
        }
    :: atomic { given > N || stop ->
        in[0] ! OVER, LOWER(given, END); in[1] ! OVER, LOWER(given, END); break }
    :: atomic { fails > 0 && given <= N && !stop ->    /* the next row fails in front of both */
        fails--; first = LOWER(given, first);
        in[0] ! OVER, given; in[1] ! OVER, given; break }
    od;
    do
    :: done ? _
    :: atomic { error ? tag ->
#ifndef NOT_TOLD
        told[0] ! tag; told[1] ! tag
#endif
        }
    :: atomic { ended[0] && ended[1] && len(error) == 0 -> break }
    od;
    assert(LOWER(cut[0], cut[1]) == first || (first == END && given > N));
    for (tag : 1 .. N) {
        assert(tag >= first || times[tag] == 1);
        assert(times[tag] <= 1)
    }
}

init { atomic { run caller(); run node(0, held0); run node(1, held1) } }
