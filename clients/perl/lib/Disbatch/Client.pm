package Disbatch::Client;

use 5.026;
use strict;
use warnings;

use Carp qw(croak);
use JSON::PP ();
use Time::HiRes ();

use Disbatch::Client::Error;
use Disbatch::Client::Files;
use Disbatch::Client::Transport;

our $VERSION = '0.1.0';

# One question to the server: a proxy in between may give up on a connection that is silent for a minute.
use constant { LONG_POLL => 50, MOST_TASKS => 1000, MOST_BYTES => 8 * 1024 * 1024, PAGE => 1000 };
# Seconds before the next question after one that was answered too early, and after which a stream has come about, though it was silent.
use constant { EARLY => 0.2, STEADY => 5 };

my %WORDS = (
    -7 => 'deferred', -6 => 'orphaned', -5 => 'cancelled', -4 => 'blocked', -3 => 'terminated', -2 => 'queued', -1 => 'claimed',
    0 => 'running', 1 => 'succeeded', 2 => 'failed',
);

BEGIN { *segment = \&Disbatch::Client::Transport::segment }

sub new {
    my ($class, %settings) = @_;
    return bless { transport => Disbatch::Client::Transport->new(%settings) }, $class;
}

sub url { $_[0]{transport}{url} }

sub with_traceparent {
    my ($self, $traceparent) = @_;
    return bless { transport => $self->{transport}->with_traceparent($traceparent) }, ref $self;
}

sub request {
    my ($self, $method, $path, %options) = @_;
    my %query = %{ $options{query} // {} };
    my %call = (method => $method, path => $path, query => [map { ($_ => $query{$_}) } sort keys %query]);
    $call{body} = $options{json} if exists $options{json};
    $call{repeatable} = $options{repeatable} // $method =~ /\A(?:GET|HEAD|PUT)\z/;
    my $content = $self->{transport}->send(\%call)->{content};
    return length $content ? Disbatch::Client::Transport::decode(\%call, $content) : undef;
}

sub version {
    my ($self) = @_;
    my $call = _reading('/info');
    my $response = $self->{transport}->send($call);
    my $body = Disbatch::Client::Transport::decode($call, $response->{content});
    if (ref $body ne 'HASH' || !exists $body->{routes}) {
        Disbatch::Client::Error->throw(code => 'protocol', message => 'GET /info: this is not the answer of a DCI; is the address right?');
    }
    return $response->{headers}{'disbatch-version'} // 'unknown';
}

sub check {
    my ($self) = @_;
    my $server = $self->version;
    # Before 1.0, a minor version may change what another one relies on.
    my ($want) = $VERSION =~ /\A(0\.\d+|\d+)/;
    return $server if index("$server.", "$want.") == 0;
    Disbatch::Client::Error->throw(
        code => 'version',
        message => "the server has version $server, and this library ($VERSION) is for servers of version $want: "
            . 'install the version of the library that the server has',
    );
}

# Tasks.

sub submit {
    my ($self, $queue, $params, %options) = @_;
    # To the server an empty one is none.
    $options{idempotency_key} = Disbatch::Client::Transport::random_key() if !length($options{idempotency_key} // '');
    my $body = { queue => $queue, params => $params // {}, _dotted(%options) };
    my $answer = $self->{transport}->json({ method => 'POST', path => '/tasks', body => $body, repeatable => 1 });
    return $answer->{array}{id} if ref $answer eq 'HASH' && ref $answer->{array} eq 'HASH';
    return (_inserted($answer))[0];
}

sub submit_many {
    my ($self, $queue, $params, %options) = @_;
    my $key = delete $options{idempotency_key} // '';
    $key = Disbatch::Client::Transport::random_key() if !length $key;
    my (@ids, $number);
    for my $part (_parts($params)) {
        croak 'a chain cannot be longer than one request' if $number && $options{chain};
        my $own = $number ? "$key/$number" : $key;
        $number++;
        my $body = { queue => $queue, params => $part, _dotted(%options, idempotency_key => $own) };
        push @ids, _inserted($self->{transport}->json({ method => 'POST', path => '/tasks', body => $body, repeatable => 1 }));
    }
    return \@ids;
}

sub get {
    my ($self, $id) = @_;
    return _task($self->{transport}->json(_reading('/tasks/' . segment($id), '.details' => 1)));
}

sub wait {
    my ($self, $id, %options) = @_;
    my $end = defined $options{timeout} ? Time::HiRes::time() + $options{timeout} : undef;
    while (1) {
        my $left = LONG_POLL;
        if (defined $end) {
            # The server takes whole seconds.
            my $rest = $end - Time::HiRes::time();
            my $whole = $rest > 0 ? int($rest) + ($rest > int $rest ? 1 : 0) : 0;
            $left = $whole if $whole < $left;
        }
        my $call = _reading('/tasks/' . segment($id) . '/wait', '.timeout' => $left);
        $call->{patience} = $left;
        my $asked = Time::HiRes::time();
        my $state = $self->{transport}->json($call);
        return $self->get($id) if $state->{ended};
        my $now = Time::HiRes::time();
        Time::HiRes::sleep(EARLY) if $now - $asked < $left;
        next if !defined $end || $now < $end;
        my $message = "task $id has not ended after $options{timeout} s: it is $state->{word}";
        Disbatch::Client::Error->throw(code => 'wait_timeout', message => $message, task => $state);
    }
}

sub result {
    my ($self, $id, %options) = @_;
    my $task = $self->wait($id, %options);
    return $task->{result} if $task->{status} == 1;
    my ($last) = defined $task->{stderr} && !ref $task->{stderr} ? $task->{stderr} =~ /([^\n]+)\s*\z/ : ();
    my $why = defined $last ? ": $last" : '';
    my $message = "task $id has not succeeded: it is $task->{word} (status $task->{status})$why";
    Disbatch::Client::Error->throw(code => 'task_failed', message => $message, task => $task);
}

sub cancel  { my ($self, $id, %options) = @_; return $self->_act($id, 'cancel', %options) }
sub retry   { my ($self, $id, %options) = @_; return $self->_act($id, 'retry',  %options) }

# Runs a task again that has ended: downstream => 'none', 'failed' or 'all' of those that come after it, params => others than it has.
sub rerun   { my ($self, $id, %options) = @_; return $self->_act($id, 'rerun',  %options) }

# Runs elements of an array again that have ended: elements => 'failed' or 'all', and the options of rerun. A bulk job does it in the background.
sub rerun_array {
    my ($self, $id, %options) = @_;
    return $self->{transport}->json({ method => 'POST', path => '/arrays/' . segment($id) . '/rerun', body => {%options} });
}

# Answers what a task has asked. A conflict if somebody else has: its details have the answer.
sub answer {
    my ($self, $id, $value) = @_;
    return $self->{transport}->json({ method => 'POST', path => '/tasks/' . segment($id) . '/answer', body => { value => $value } });
}

sub _act {
    my ($self, $id, $verb, %options) = @_;
    return $self->{transport}->json({ method => 'POST', path => '/tasks/' . segment($id) . "/$verb", body => {%options} });
}

sub explain {
    my ($self, $id) = @_;
    return $self->{transport}->json(_reading('/tasks/' . segment($id) . '/explain'));
}

sub list {
    my ($self, %filters) = @_;
    my ($limit, $each) = delete @filters{qw(limit each)};
    my (@listed, $after);
    my $left = $limit;
    while (!defined $left || $left > 0) {
        my $size = defined $left && $left < PAGE ? $left : PAGE;
        my $page = $self->{transport}->json(_reading('/tasks/find', %filters, '.limit' => $size, '.after' => $after));
        my @tasks = map { _task($_) } @{ $page->{tasks} };
        if ($each) { $each->($_) for @tasks }
        else       { push @listed, @tasks }
        $left -= @tasks if defined $left;
        $after = $page->{next};
        last if !defined $after;
    }
    return \@listed;
}

sub output {
    my ($self, $id, $stream, %options) = @_;
    $stream //= 'stdout';
    croak "a task has stdout and stderr, and no $stream" if $stream !~ /\Astd(?:out|err)\z/;
    my $follow = $options{follow};
    my $all = '';
    my $take = ref $follow eq 'CODE' ? $follow : sub { $all .= $_[0] };
    # Where we are, and where the answer is; what is missing before the next byte, and the last byte that was given.
    my ($offset, $at, $tried, $missing, $last) = (0, 0, 0, 0, '');
    my $attempt = $options{attempt};
    $attempt //= $self->_attempt($id) if $follow;
    while (1) {
        my @query = ('.follow' => $follow ? 1 : undef, '.attempt' => $attempt, '.from' => $follow ? $offset : undef);
        my $call = _reading('/tasks/' . segment($id) . "/$stream", @query);
        $call->{headers} = { accept => '*/*', $offset ? (range => "bytes=$offset-") : () };
        my $answered = 0;
        my $done = eval {
            $self->{transport}->once($call, sub {
                my ($chunk, $response) = @_;
                # One that was not there yet when it was asked for. What comes after a lost connection is to be of the same.
                $attempt //= $self->_attempt($id) if $follow && !$offset;
                if (!$answered) {
                    # An answer begins where it says, which need not be where it was asked for.
                    $answered = Time::HiRes::time();
                    my $is_part = $response->{status} == 206;
                    my ($start) = ($response->{headers}{ $is_part ? 'content-range' : 'disbatch-from' } // '') =~ /\A(?:bytes )?(\d+)/;
                    $at = $start // ($is_part ? $offset : 0);
                    ($missing, $offset) = ($missing + $at - $offset, $at) if $at > $offset;
                }
                my $known = $offset - $at;
                $at += length $chunk;
                return if $at <= $offset;
                ($offset, $tried) = ($at, 0);
                substr $chunk, 0, $known, '' if $known > 0;
                # As the server has it where nobody counts bytes.
                $chunk = ($last =~ /[^\n]\z/ ? "\n" : '') . "[$missing bytes not kept]\n$chunk" if $missing;
                ($missing, $last) = (0, substr $chunk, -1);
                $take->($chunk);
            });
            1;
        };
        return ref $follow eq 'CODE' ? undef : $all if $done;
        my $error = $@;
        return ref $follow eq 'CODE' ? undef : $all if $offset && _is($error, 'range_not_satisfiable');
        # A task may be silent for as long as it likes.
        next if $answered && _is($error, 'request_timeout') && !defined $error->status;
        $tried = 0 if $answered && Time::HiRes::time() - $answered > STEADY;
        $self->{transport}->pause($call, $error, $tried++);
    }
}

# The number of the attempt that runs, or was the last; none as long as there is another one to come.
sub _attempt {
    my ($self, $id) = @_;
    my $task = _task($self->{transport}->json(_reading('/tasks/' . segment($id), '.details' => 1, '.terse' => 1)));
    return ($task->{word} // '') eq 'running' || $task->{ended} ? $task->{attempt} : undef;
}

sub events {
    my ($self, $id, %options) = @_;
    my ($after, $each) = @options{qw(after each)};
    my ($tried, $is_over, @listed) = (0, 0);
    my $stop = \'stop';
    while (1) {
        my $call = _reading('/tasks/' . segment($id) . '/events');
        $call->{headers} = { accept => 'text/event-stream', defined $after ? ('last-event-id' => $after) : () };
        my ($answered, $rest, %event) = (0, '');
        eval {
            $self->{transport}->once($call, sub {
                $answered ||= Time::HiRes::time();
                $rest .= $_[0];
                while ($rest =~ s/\A(.*?)\r?\n//) {
                    my ($name, $value) = $1 =~ /\A([^:]*):? ?(.*)\z/s;
                    if ($name eq 'data') { push @{ $event{data} }, $value }
                    elsif ($name =~ /\A(?:event|id)\z/) { $event{$name} = $value }
                    elsif ($name eq '' && $value eq '' && $event{data}) {
                        my $one = {
                            event => $event{event} // '', id => $event{id},
                            data => Disbatch::Client::Transport::decode($call, join "\n", @{ $event{data} }),
                        };
                        delete @event{qw(event data)};
                        ($tried, $after) = (0, $one->{id} // $after);
                        my $goes_on = $each ? $each->($one) : push @listed, $one;
                        $is_over = 1, die $stop if $one->{event} eq 'end' || !$goes_on;
                    }
                }
            });
            Disbatch::Client::Error->throw(code => 'unreachable', message => "GET $call->{path}: the events broke off");
        };
        return $each ? undef : \@listed if $is_over;
        my $error = $@;
        next if $answered && _is($error, 'request_timeout') && !defined $error->status;
        $tried = 0 if $answered && Time::HiRes::time() - $answered > STEADY;
        $self->{transport}->pause($call, $error, $tried++);
    }
}

# Queues and schedules.

sub queues {
    my ($self, %options) = @_;
    return $self->{transport}->json(_reading('/queues', '.details' => $options{details} ? 1 : undef));
}

sub queue {
    my ($self, $name) = @_;
    return $self->{transport}->json(_reading('/queues/' . segment($name), '.details' => 1));
}

sub create_queue {
    my ($self, $name, $plugin, %settings) = @_;
    my $answer = $self->{transport}->json({ method => 'POST', path => '/queues', body => { name => $name, plugin => $plugin } });
    $self->update_queue($name, %settings) if %settings;
    return $answer->{id}{'$oid'};
}

sub update_queue {
    my ($self, $name, %settings) = @_;
    $self->{transport}->send({ method => 'POST', path => '/queues/' . segment($name), body => {%settings}, repeatable => 1 });
    return;
}

sub delete_queue {
    my ($self, $name) = @_;
    $self->{transport}->send({ method => 'DELETE', path => '/queues/' . segment($name) });
    return;
}

sub pause {
    my ($self, $queue, %options) = @_;
    return $self->update_queue($queue, paused => JSON::PP::true, reason => $options{reason});
}

sub resume {
    my ($self, $queue) = @_;
    return $self->update_queue($queue, paused => undef, reason => undef);
}

sub schedules {
    my ($self, %filters) = @_;
    my @listed;
    while (1) {
        my $after = @listed ? $listed[-1]{name} : undef;
        my $page = $self->{transport}->json(_reading('/schedules', %filters, '.limit' => PAGE, '.after' => $after));
        push @listed, @$page;
        return \@listed if @$page < PAGE;
    }
}

sub schedule {
    my ($self, $name) = @_;
    return $self->{transport}->json(_reading('/schedules/' . segment($name)));
}

sub create_schedule {
    my ($self, $name, $queue, %fields) = @_;
    return $self->{transport}->json({ method => 'POST', path => '/schedules', body => { name => $name, queue => $queue, _schedule(%fields) } });
}

sub update_schedule {
    my ($self, $name, %fields) = @_;
    return $self->{transport}->json({ method => 'POST', path => '/schedules/' . segment($name), body => { _schedule(%fields) } });
}

sub delete_schedule {
    my ($self, $name) = @_;
    $self->{transport}->send({ method => 'DELETE', path => '/schedules/' . segment($name) });
    return;
}

sub pause_schedule  { my ($self, $name) = @_; return $self->_steer($name, 'pause',  1) }
sub resume_schedule { my ($self, $name) = @_; return $self->_steer($name, 'resume', 1) }
sub run_schedule    { my ($self, $name) = @_; return $self->_steer($name, 'run',    0)->{task} }

sub _steer {
    my ($self, $name, $verb, $repeatable) = @_;
    return $self->{transport}->json({ method => 'POST', path => '/schedules/' . segment($name) . "/$verb", body => {}, repeatable => $repeatable });
}

# Files.

sub files     { my ($self, @arguments) = @_; return Disbatch::Client::Files::versions($self->{transport}, @arguments) }
sub put_files { my ($self, @arguments) = @_; return Disbatch::Client::Files::put($self->{transport}, @arguments) }
sub get_files { my ($self, @arguments) = @_; return Disbatch::Client::Files::get($self->{transport}, @arguments) }

sub _reading {
    my ($path, @query) = @_;
    return { method => 'GET', path => $path, query => \@query, repeatable => 1 };
}

sub _is {
    my ($error, $code) = @_;
    return ref $error && eval { $error->isa('Disbatch::Client::Error') } && $error->code eq $code;
}

# Options with their dot.
sub _dotted {
    my (%options) = @_;
    return map { (".$_" => $options{$_}) } grep { defined $options{$_} } keys %options;
}

sub _schedule {
    my (%fields) = @_;
    my %dotted = map { ($_ => delete $fields{$_}) } grep { exists $fields{$_} } qw(secure_params rev);
    return (%fields, _dotted(%dotted));
}

sub _parts {
    my ($params) = @_;
    my (@parts, $size);
    for my $one (@$params) {
        my $more = length Disbatch::Client::Transport::encode($one);
        if (!@parts || @{ $parts[-1] } >= MOST_TASKS || $size + $more > MOST_BYTES) {
            push @parts, [];
            $size = 0;
        }
        push @{ $parts[-1] }, $one;
        $size += $more;
    }
    return @parts;
}

sub _inserted {
    my ($answer) = @_;
    my $listed = ref $answer eq 'HASH' ? $answer->{'MongoDB::InsertManyResult'}{inserted} : undef;
    if (ref $listed ne 'ARRAY' || !@$listed) {
        Disbatch::Client::Error->throw(code => 'protocol', message => 'POST /tasks: the answer has no ids of tasks');
    }
    return map { $_->{_id}{'$oid'} } sort { $a->{index} <=> $b->{index} } @$listed;
}

# A task with plain ids, and its status in a word, as the other answers have it.
sub _task {
    my ($stored) = @_;
    my %task = %$stored;
    $task{id} = delete $task{_id} if exists $task{_id};
    for (grep { ref $_ eq 'HASH' && exists $_->{'$oid'} } @task{qw(id queue)}) { $_ = $_->{'$oid'} }
    my $status = $task{status};
    if (defined $status && $status =~ /\A-?\d+\z/) {
        $task{word} = $WORDS{$status} // ($status > 0 ? 'finished' : 'held');
        $task{ended} = $status > 0 || $status =~ /\A-[653]\z/ ? JSON::PP::true : JSON::PP::false;
    }
    return \%task;
}

1;

__END__

=encoding utf8

=head1 NAME

Disbatch::Client - submits tasks to Disbatch and follows them

=head1 SYNOPSIS

    use Disbatch::Client;

    my $client = Disbatch::Client->new(url => 'http://localhost:8080');
    my $id = $client->submit('greetings', { names => ['Ada'] }, max_attempts => 3);
    my $result = $client->result($id);

=head1 DESCRIPTION

README.md of this distribution and docs/clients.md of Disbatch describe the methods. Text is characters, output is bytes. Whatever goes wrong
is a L<Disbatch::Client::Error>, whose C<code> says what. L<Disbatch::Client::Task> is for plugins, L<Disbatch::Client::Dev> for tests.

=cut
