#!/usr/bin/env perl
# The plugin of the conformance suite: does what `params.do` says.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../../perl/lib";
use Disbatch::Client::Task;

# Of all tasks, in a database of the plugin's own.
sub effects_of {
    my ($url) = @_;
    require MongoDB;
    return MongoDB->connect($url)->get_database('shop')->get_collection('effects');
}

# The effect of the task and its end, in one transaction, and what follows.
sub move {
    my ($task, $url, $status, @then) = @_;
    my %then = map { ($_ => 1) } @then;
    my $effects = effects_of($url);
    for (1 .. ($then{again} ? 2 : 1)) {
        $effects->client->start_session->with_transaction(sub {
            my ($session) = @_;
            $effects->insert_one({ task => $task->id, attempt => $task->attempt }, { session => $session });
            $task->commit($session, $status);
            die "aborted\n" if $then{abort} || $then{'abort at first'} && $task->attempt == 1;
        });
    }
    die "too late\n" if $then{fail};
}

sub act {
    my ($task, $verb, @args) = @_;
    if ($verb eq 'tell') {
        $task->result({ id => $task->id, queue => $task->env->{DISBATCH_QUEUE}, storage => $task->storage, attempt => $task->attempt });
    }
    elsif ($verb eq 'ask' && $task->answer) {
        $task->result({ value => $task->answer->{value}, attempt => $task->answer->{attempt} });
    }
    elsif ($verb eq 'fail') {
        die "$args[0]\n";
    }
    elsif ($verb eq 'move') {
        move($task, @args);
    }
    elsif ($verb eq 'effects') {
        $task->result({ attempts => [map { $_->{attempt} } effects_of($args[0])->find({ task => $args[1] })->all] });
    }
    elsif ($verb eq 'until_cancelled') {
        select undef, undef, undef, 0.02 until $task->cancelled;
        $task->log('cancelled as asked');
    }
    else {
        $task->$verb(@args);
    }
}

sub work {
    my ($task) = @_;
    act($task, @$_) for @{ $task->params->{do} };
}

sub answer {
    my ($task) = @_;
    return $task->done if eval { work($task); 1 };
    my $why = $@;
    chomp $why;
    $task->log($why);
    $task->done(1);
}

if (($ARGV[0] // '') eq 'batch') {
    Disbatch::Client::Task->run_batch(sub { answer($_) for @_ });
}
else {
    Disbatch::Client::Task->run(\&work);
}
