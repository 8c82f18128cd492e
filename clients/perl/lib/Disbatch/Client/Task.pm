package Disbatch::Client::Task;

# Writes a plugin. See docs/plugins.md of Disbatch for what a plugin is.

use 5.026;
use strict;
use warnings;

use Carp qw(croak);
use Fcntl qw(O_APPEND O_WRONLY);
use IO::Handle ();
use JSON::PP ();

use constant { MAX_SAVED => 1024 * 1024, MAX_TEXT => 256 * 1024 };

my $JSON = JSON::PP->new->utf8->canonical->allow_nonref;

# Tasks by their id, the lists of them that were read meanwhile, and what is not a whole line yet.
my (%known, @lines);
my ($buffer, $is_at_end) = ('', 0);

sub new {
    my ($class, $document, %given) = @_;
    croak 'the task must be an object' if ref $document ne 'HASH';
    my %document = %$document;
    # Not part of the document, so that it is not printed with it.
    my $secure = delete $document{secure_params};
    my $env = $given{env} // \%ENV;
    return bless {
        document => \%document, secure => sub { $secure // {} }, env => $env, in_batch => $given{in_batch}, control => $given{control} // _control(),
        work_dir => $given{work_dir} // $env->{DISBATCH_WORK_DIR} // '.',
    }, $class;
}

# The task of a process that has been started for it alone.
sub from_stdin {
    my ($class) = @_;
    local $/;
    return $class->new($JSON->decode(scalar <STDIN>));
}

sub document      { $_[0]{document} }
sub params        { $_[0]{document}{params} // {} }
sub secure_params { $_[0]{secure}->() }
sub storage       { $_[0]{document}{storage} }
sub answer        { $_[0]{document}{answer} }
sub env           { $_[0]{env} }
sub work_dir      { $_[0]{work_dir} }
sub attempt       { ($_[0]{env}{DISBATCH_ATTEMPT} // 1) + 0 }
sub queue         { _id($_[0]{document}{queue}) // '' }
sub id            { _id($_[0]{document}{_id}) // $_[0]{env}{DISBATCH_TASK_ID} // '' }
sub is_done       { $_[0]{is_done} }

# How far it is, from 0 to 100, and what it does.
sub progress {
    my ($self, $percent, $message) = @_;
    my %progress;
    $progress{percent} = $percent < 0 ? 0 : $percent > 100 ? 100 : $percent + 0 if defined $percent && $percent == $percent;
    $progress{message} = "$message" if defined $message && length $message;
    $self->_send(progress => \%progress) if %progress;
}

# The structured result. The last one wins.
sub result {
    my ($self, $value) = @_;
    croak 'result must be an object' if ref $value ne 'HASH';
    $self->_send(result => _sized(result => $value));
}

# What the next run finds in `storage`. The last one wins.
sub save {
    my ($self, $value) = @_;
    $self->_send(storage => _sized(storage => $value));
}

# Asks a person: return after this, and the next attempt has `answer`. The form is a JSON Schema of it; options are `who`, `deadline` and `on_deadline`.
sub ask {
    my ($self, $title, $form, %options) = @_;
    $self->_send(await => { title => "$title", defined $form ? (form => $form) : (), %options });
}

# It has stopped where it was, as SIGTERM told it to: save what the next attempt goes on with, and return after this. Needs
# `"interruptible": true` in the manifest.
sub interrupted {
    my ($self) = @_;
    $self->_send(interrupted => JSON::PP::true);
}

# The final status in place of 1: a positive number.
sub status {
    my ($self, $status) = @_;
    $self->_send(status => _final($status));
}

# Ends the task in the transaction of a session, as its last statement: the effects are there and the task has ended, or neither. Needs
# `"commits": true` in the manifest. MongoDB::DuplicateKeyError says that the run has lost its task, or has ended it before: abort.
sub commit {
    my ($self, $session, $status) = @_;
    my $document = $self->commit_document($status);
    $session->client->get_database($self->{env}{DISBATCH_DATABASE})->get_collection('tasks.commits')->insert_one($document, { session => $session });
    return;
}

# What `commit` inserts into the collection `tasks.commits` of the database `env->{DISBATCH_DATABASE}`.
sub commit_document {
    my ($self, $status) = @_;
    my $name = $self->{env}{DISBATCH_COMMIT}
        or croak 'the task cannot be committed: its manifest has no "commits": true, or another step comes after this one';
    return { _id => $name, status => _final($status // 1) };
}

# Adds a document to the collection `reports`.
sub report {
    my ($self, $document) = @_;
    $self->_send(report => $document);
}

# A line of the task's standard error, at once.
sub log { $_[0]->_write(stderr => "$_[1]\n") }

# A line of the task's standard output, at once; also in batches, where what Perl prints belongs to no task.
sub print { $_[0]->_write(stdout => "$_[1]\n") }

# In a batch: the task is over, and failed unless the exit status is 0. What was not answered when the work returns is over then.
sub done {
    my ($self, $exit) = @_;
    croak 'the task ' . $self->id . ' is over already' if $self->{is_done}++;
    $exit = ($exit // 0) + 0;
    return $self->_send(done => { exit => $exit }) if $self->{in_batch};
    _put($self->{control}, { done => { id => $self->id, exit => $exit } });
}

# In a batch: whether the task is to end. Looks whether the runner has said so.
sub cancelled {
    my ($self) = @_;
    while (!$self->{cancelled} && !$is_at_end && $self->{in_batch}) {
        my $ready = '';
        vec($ready, fileno(STDIN), 1) = 1;
        last if 1 > select $ready, undef, undef, 0;
        _read(ref $self);
    }
    return $self->{cancelled} // 0;
}

sub _final {
    my ($status) = @_;
    croak 'status must be a positive integer, got ' . ($status // 'nothing') if !defined $status || $status !~ /\A[1-9]\d*\z/;
    return $status + 0;
}

sub _write {
    my ($self, $stream, $text) = @_;
    if ($self->{in_batch}) {
        $self->_send($stream => substr $text, 0, MAX_TEXT, '') while length $text;
        return;
    }
    utf8::encode($text);
    my $handle = $stream eq 'stderr' ? \*STDERR : \*STDOUT;
    # What was printed before comes before.
    $handle->flush;
    _all(fileno $handle, $text);
}

sub _send {
    my ($self, %message) = @_;
    _put($self->{control}, { %message, $self->{in_batch} ? (id => $self->id) : () });
}

# The control descriptor, or its path in a container or a pod. Without a runner, as when a plugin is tried by hand, what is sent goes nowhere.
sub _control { length $ENV{DISBATCH_CONTROL_FD} ? $ENV{DISBATCH_CONTROL_FD} : $ENV{DISBATCH_CONTROL} }

sub _put {
    my ($control, $message) = @_;
    _all($control, $JSON->encode($message) . "\n") if defined $control && length $control;
}

my %handles;

sub _all {
    my ($target, $bytes) = @_;
    my $handle = $handles{$target} //= _open($target) or return;
    while (length $bytes) {
        my $written = syswrite $handle, $bytes;
        # A signal that the plugin handles is no error.
        croak "cannot write to the descriptor $target: $!" if !defined $written && !$!{EINTR};
        substr $bytes, 0, $written // 0, '';
    }
}

# A descriptor by its number, or what a path names: 0 if that cannot be opened.
sub _open {
    my ($target) = @_;
    my $opened;
    if ($target =~ /\A\d+\z/) { open $opened, '>&=', $target or croak "cannot write to the descriptor $target: $!" }
    elsif (!sysopen $opened, $target, O_WRONLY | O_APPEND) {
        print STDERR "cannot open '$target' of DISBATCH_CONTROL: $!; progress and results are lost\n";
        return 0;
    }
    binmode $opened;
    return $opened;
}

sub _id {
    my ($value) = @_;
    $value = $value->{'$oid'} if ref $value eq 'HASH';
    return $value;
}

sub _sized {
    my ($name, $value) = @_;
    my $size = length $JSON->encode($value);
    croak "$name must have at most ${\MAX_SAVED} bytes, got $size" if $size > MAX_SAVED;
    return $value;
}

# Does it, and returns what would be the exit status of a process of its own, and why.
sub _attempt {
    my ($work) = @_;
    return (0, '') if eval { $work->(); 1 };
    my $why = "$@";
    return (1, $why =~ /\n\z/ ? $why : "$why\n");
}

# Whether the runner gives this process task after task.
sub is_warm { ($ENV{DISBATCH_WARM} // '') eq '1' }

# Does the task on standard input, or where the manifest says `warm`, one task after the other; then exits.
# To die is a failure: what is died with is printed on standard error.
sub run {
    my ($class, $work) = @_;
    return $class->run_warm($work) if is_warm();
    my ($code, $why) = _attempt(sub { $work->($class->from_stdin) });
    utf8::encode($why) if utf8::is_utf8($why);
    print STDERR $why;
    exit $code;
}

# Does task after task, also those of a manifest with `batch`, one at a time; without a runner, the one on standard input.
sub run_warm {
    my ($class, $work) = @_;
    return $class->run($work) if !is_warm();
    while (my $tasks = $class->_line) {
        for my $task (@$tasks) {
            my ($code, $why) = $task->{in_batch} ? _stand_for($task, $work) : _adopt($task, $work);
            $task->_write(stderr => $why) if length $why;
            $_->flush for \*STDOUT, \*STDERR;
            $task->done($code);
            _forget($task);
        }
    }
    exit 0;
}

# Gives `work` a list with all tasks of a line at once: those of a manifest with `batch`. Answer each with `done` as soon as it is.
# What `work` has not answered when it returns has succeeded; if it dies, that has failed. Ask a task whether it is `cancelled`.
# Without a runner, `work` gets the one task on standard input.
sub run_batch {
    my ($class, $work) = @_;
    return $class->run($work) if !is_warm();
    while (my $tasks = $class->_line) {
        my @tasks = @$tasks;
        my ($code, $why) = _attempt(sub { $work->(@tasks) });
        for my $task (@tasks) {
            _forget($task);
            next if $task->is_done;
            $task->_write(stderr => $why) if length $why;
            $_->flush for \*STDOUT, \*STDERR;
            $task->done($code);
        }
    }
    exit 0;
}

# Its next attempt may wait already.
sub _forget {
    my ($task) = @_;
    delete $known{ $task->id } if ($known{ $task->id } // 0) == $task;
}

# The tasks of the next line.
sub _line {
    my ($class) = @_;
    _read($class) while !@lines && !$is_at_end;
    return shift @lines;
}

# Reads what there is of standard input; whoever is to end hears of it, also while it waits for its turn.
sub _read {
    my ($class) = @_;
    my $read = sysread STDIN, $buffer, 65536, length $buffer;
    return if !defined $read && $!{EINTR};
    croak "cannot read the tasks: $!" if !defined $read;
    $is_at_end = 1 if !$read;
    while ($buffer =~ s/\A([^\n]*)\n//) {
        my $line = $JSON->decode($1);
        if (my $cancel = $line->{cancel}) { $known{ $cancel->{id} }{cancelled} = 1 if $known{ $cancel->{id} } }
        else {
            push @lines, [$class->_tasks($line)];
            $known{ $_->id } = $_ for @{ $lines[-1] };
        }
    }
}

sub _tasks {
    my ($class, $line) = @_;
    my $in_batch = exists $line->{tasks};
    my @entries = $in_batch ? @{ $line->{tasks} } : exists $line->{task} ? $line : ();
    return map { $class->new($_->{task}, env => $_->{env} // {}, work_dir => $_->{work_dir}, in_batch => $in_batch, control => _control()) } @entries;
}

# Programs that the task starts have its variables, as if the process were its own. The next task may lack some of them.
sub _adopt {
    my ($task, $work) = @_;
    my %env = %{ $task->env };
    utf8::encode($_) for values %env;
    local @ENV{ keys %env } = values %env;
    return _attempt(sub { $work->($task) });
}

# What is printed in a batch would belong to no task.
sub _stand_for {
    my ($task, $work) = @_;
    my %printed = (stdout => '', stderr => '');
    my ($code, $why);
    {
        local (*STDOUT, *STDERR);
        open STDOUT, '>', \$printed{stdout} or croak "cannot redirect standard output: $!";
        open STDERR, '>', \$printed{stderr} or croak "cannot redirect standard error: $!";
        ($code, $why) = _attempt(sub { $work->($task) });
        $_->flush for \*STDOUT, \*STDERR;
    }
    for my $stream (grep { length $printed{$_} } qw(stdout stderr)) {
        utf8::decode($printed{$stream});
        $task->_write($stream => $printed{$stream});
    }
    return ($code, $why);
}

1;
