# Plugins by hand: without a runner, with a control descriptor, and warm.

use strict;
use warnings;
use utf8;

use File::Temp ();
use FindBin;
use JSON::PP ();
use Test::More;

use lib "$FindBin::Bin/../lib";
use Disbatch::Client::Task;

my $JSON = JSON::PP->new->utf8->canonical;
my $WORK = <<'END';
use Disbatch::Client::Task;
sub work {
    my ($task) = @_;
    print 'out ', $task->params->{n}, "\n";
    $task->progress(250, 'too far');
    $task->result({ n => $task->params->{n} });
    die "negative\n" if $task->params->{n} < 0;
}
END

# Exit status, standard output and error, and what was sent on the control descriptor.
sub plugin {
    my ($program, $stdin, %env) = @_;
    my $folder = File::Temp->newdir;
    my $save = sub {
        my ($name, $text) = @_;
        open my $file, '>', "$folder/$name" or die $!;
        print {$file} $text;
        close $file or die $!;
    };
    $save->('plugin.pl', "use lib '$FindBin::Bin/../lib';\n$WORK$program");
    $save->('in', $stdin);
    local @ENV{ 'DISBATCH_CONTROL_FD', keys %env } = (3, values %env);
    my $status = system "$^X '$folder/plugin.pl' <'$folder/in' >'$folder/out' 2>'$folder/err' 3>'$folder/control'";
    my ($out, $err, $said) = map {
        open my $file, '<', "$folder/$_" or die $!;
        local $/;
        scalar(<$file>) // '';
    } qw(out err control);
    return ($status >> 8, $out, $err, [map { $JSON->decode($_) } split /\n/, $said]);
}

sub line {
    my ($id, $n) = @_;
    return { task => { _id => { '$oid' => $id }, params => { n => $n } }, env => { DISBATCH_TASK_ID => $id } };
}

my %warm = (DISBATCH_WARM => 1);
my $progress = { progress => { percent => 100, message => 'too far' } };

is_deeply [plugin('Disbatch::Client::Task->run(\&work)', '{"params":{"n":1}}')], [0, "out 1\n", '', [$progress, { result => { n => 1 } }]], 'one task';
my ($code, $out, $err, $said) = plugin('Disbatch::Client::Task->run(\&work)', '{"params":{"n":-1}}');
is_deeply [$code, $out, $err], [1, "out -1\n", "negative\n"], 'one that fails';
is((plugin('Disbatch::Client::Task->run(\&work)', 'nonsense'))[0], 1, 'none');
is_deeply [plugin('Disbatch::Client::Task->run(sub { $_[0]->save(3); $_[0]->interrupted })', '{}')]->[3],
    [{ storage => 3 }, { interrupted => JSON::PP::true }], 'one that is interrupted';
is((plugin('Disbatch::Client::Task->run_batch(\&work)', '{"params":{"n":1}}'))[1], "out 1\n", 'a batch of one');

my $control = File::Temp->new;
print {$control} "{}\n";
$control->flush;
my @by_path = ('Disbatch::Client::Task->run(\&work)', '{"params":{"n":1}}', DISBATCH_CONTROL_FD => '', DISBATCH_CONTROL => "$control");
is_deeply [plugin(@by_path)], [0, "out 1\n", '', []], 'a container names a path';
seek $control, 0, 0 or die $!;
is_deeply [map { $JSON->decode($_) } <$control>], [{}, $progress, { result => { n => 1 } }], 'which what is sent is appended to';
unlink "$control" or die $!;
($code, $out, $err) = plugin(@by_path);
is_deeply [$code, $out, -e "$control"], [0, "out 1\n", undef], 'one that is not there is not made';
is(() = $err =~ /progress and results are lost/g, 1, 'and it is said once');

my $lines = join '', map { $JSON->encode($_) . "\n" } line('a', 1), line('b', -2), line('c', 3);
($code, $out, $err, $said) = plugin('Disbatch::Client::Task->run_warm(\&work)', $lines, %warm);
is_deeply [$code, $out, $err], [0, "out 1\nout -2\nout 3\n", "negative\n"], 'task after task';
is_deeply [map { $_->{done} // () } @$said], [{ id => 'a', exit => 0 }, { id => 'b', exit => 1 }, { id => 'c', exit => 0 }], 'each has its end';

my %first = (DISBATCH_TASK_ID => 'a', TRACEPARENT => '00-1', DISBATCH_STEP_NAME => 'sum', DISBATCH_NODE => 'theirs');
$lines = join '', map { $JSON->encode({ task => {}, env => $_ }) . "\n" } \%first, { DISBATCH_TASK_ID => 'b' };
my $prints = 'Disbatch::Client::Task->run_warm(sub { print join(" ", map { $_ // "none" } @ENV{qw(DISBATCH_TASK_ID TRACEPARENT DISBATCH_STEP_NAME DISBATCH_NODE)}), "\n" })';
($code, $out, $err) = plugin($prints, $lines, %warm, DISBATCH_NODE => 'own');
is_deeply [$out, $err], ["a 00-1 sum theirs\nb none none own\n", ''], 'a task has no variables of the one before';

my $both = $JSON->encode({ tasks => [line('a', 1), line('b', -2)] }) . "\n";
($code, $out, $err, $said) = plugin('Disbatch::Client::Task->run(\&work)', $both, %warm);
is_deeply [$code, $out], [0, ''], 'a batch one by one';
is join('', map { $_->{stdout} // () } grep { $_->{id} eq 'a' } @$said), "out 1\n", 'what is printed is its own';
is_deeply $said->[-1], { id => 'b', done => { exit => 1 } }, 'and so is its end';
(undef, undef, undef, $said) = plugin('Disbatch::Client::Task->run_batch(sub { $_[1]->print("two"); $_[1]->done(3) })', $both, %warm);
is_deeply $said, [{ id => 'b', stdout => "two\n" }, { id => 'b', done => { exit => 3 } }, { id => 'a', done => { exit => 0 } }], 'a batch at once';
(undef, undef, undef, $said) = plugin('Disbatch::Client::Task->run_batch(sub { die "no\n" })', $both, %warm);
is_deeply [map { $_->{done} // () } @$said], [{ exit => 1 }, { exit => 1 }], 'which may fail as a whole';

my $one_by_one = join '', map { $JSON->encode($_) . "\n" } { tasks => [line('a', 1)] }, { tasks => [line('b', 2)] }, { cancel => { id => 'b' } };
for my $run ('run_batch', 'run_warm') {
    (undef, undef, undef, $said) = plugin("Disbatch::Client::Task->$run(sub { \$_[0]->status(5 + \$_[0]->cancelled) })", $one_by_one, %warm);
    is_deeply [map { $_->{status} // () } @$said], [5, 6], "$run: a task that waits hears of its cancel";
}

# There is nothing to read before the third signal, and room for all of what is said only by those after the sixth.
($code, $out, $err) = plugin(<<'END', '', %warm);
use Time::HiRes qw(ITIMER_REAL setitimer);
pipe my $in, my $lines or die $!;
pipe my $said, my $control or die $!;
open STDIN, '<&', $in or die $!;
$said->blocking(0);
$ENV{DISBATCH_CONTROL_FD} = fileno $control;
my ($signals, $heard) = (0, '');
$SIG{ALRM} = sub {
    if (++$signals == 3) {
        syswrite $lines, qq({"task":{},"env":{"DISBATCH_TASK_ID":"a"}}\n) or die $!;
        close $lines;
    }
    sysread $said, $heard, 65536, length $heard if $signals > 6;
};
setitimer ITIMER_REAL, 0.01, 0.01;
END {
    setitimer ITIMER_REAL, 0;
    1 while sysread $said, $heard, 65536, length $heard;
    print "$1\n" if $heard =~ /\n(.*)\n\z/;
}
Disbatch::Client::Task->run_warm(sub { $_[0]->result({ a => 'x' x 1_000_000 }) });
END
is_deeply [$code, $out, $err], [0, qq({"done":{"exit":0,"id":"a"}}\n), ''], 'signals that a plugin handles are no errors';

my $task = Disbatch::Client::Task->new({ params => { a => 1 }, secure_params => { password => 'horse' } });
is $task->secure_params->{password}, 'horse', 'secure parameters';
unlike $JSON->encode($task->document), qr/horse/, 'are not part of the document';
for (
    [sub { $task->status(0) }, qr/status must be a positive integer/],
    [sub { $task->result([1]) }, qr/result must be an object/],
    [sub { $task->result({ a => 'x' x 1024**2 }) }, qr/result must have at most 1048576 bytes/],
    [sub { Disbatch::Client::Task->new(5) }, qr/the task must be an object/],
) {
    my ($wrong, $why) = @$_;
    ok !eval { $wrong->(); 1 }, 'only what can be stored is sent';
    like $@, $why, 'and it is said why';
}

my $committing = Disbatch::Client::Task->new({}, env => { DISBATCH_COMMIT => '6b0003bb686c8275d8013333.2', DISBATCH_DATABASE => 'disbatch' });
is_deeply $committing->commit_document, { _id => '6b0003bb686c8275d8013333.2', status => 1 }, 'a task is committed under the name of its attempt';
is $committing->commit_document(7)->{status}, 7, 'with a status';
ok !eval { $committing->commit_document(0); 1 }, 'which is positive';
like $@, qr/status must be a positive integer/, 'and it is said why';
ok !eval { Disbatch::Client::Task->new({}, env => {})->commit_document; 1 }, 'if its manifest says so';
like $@, qr/its manifest has no "commits": true/, 'and it is said why';

done_testing;
