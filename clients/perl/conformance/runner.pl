#!/usr/bin/env perl
# Runs the cases of clients/conformance/cases. ../../run-conformance starts it.

use 5.026;
use strict;
use warnings;
use utf8;

use File::Basename qw(dirname);
use File::Path qw(make_path);
use File::Temp ();
use FindBin;
use HTTP::Tiny;
use JSON::PP ();
use Time::HiRes ();

use lib "$FindBin::Bin/../lib";
use Disbatch::Client;

binmode STDOUT, ':utf8';

my $JSON = JSON::PP->new->utf8->canonical->allow_nonref;

sub is_object { ref $_[0] eq 'HASH' }

# The value with `$name` and `${name}` replaced, and what stands for a list or a time.
sub fill {
    my ($value, $known) = @_;
    return [map { fill($_, $known) } @$value] if ref $value eq 'ARRAY';
    if (is_object($value)) {
        return [($value->{'$repeat'}) x $value->{times}] if exists $value->{'$repeat'};
        return $value->{'$time'} if exists $value->{'$time'};
        return { map { (fill($_, $known) => fill($value->{$_}, $known)) } keys %$value };
    }
    return $value if !defined $value || ref $value || $value !~ /\$/;
    if ($value =~ /\A\$([a-z_]+)(?:\.(\d+))?\z/ && exists $known->{$1}) {
        return defined $2 ? $known->{$1}[$2] : $known->{$1};
    }
    return $value =~ s/\$\{([a-z_]+)\}/$known->{$1}/gr;
}

my $MISSING = \'missing';

sub shown { substr ref $_[0] eq 'SCALAR' && $_[0] == $MISSING ? 'missing' : eval { $JSON->encode($_[0]) } // "$_[0]", 0, 600 }

sub same {
    my ($one, $other) = @_;
    return 0 if ref $other eq 'SCALAR';
    return $JSON->encode($one) eq $JSON->encode($other);
}

my %TYPES = (
    string => sub { !ref $_[0] && defined $_[0] && $JSON->encode($_[0]) =~ /\A"/ },
    number => sub { !ref $_[0] && defined $_[0] && $JSON->encode($_[0]) !~ /\A"/ },
    array  => sub { ref $_[0] eq 'ARRAY' },
    object => \&is_object,
);

my %OPERATORS = (
    '$any'   => sub { undef },
    '$save'  => sub { my ($name, $have, $known) = @_; $known->{$name} = $have; undef },
    '$re'    => sub { my ($re, $have) = @_; defined $have && !ref $have && $have =~ /$re/ ? undef : "does not match $re" },
    '$type'  => sub { my ($type, $have) = @_; $TYPES{$type}->($have) ? undef : "is no $type" },
    '$exact' => sub { my ($want, $have) = @_; same($want, $have) ? undef : 'is not ' . shown($want) },
    '$len'   => sub {
        my ($length, $have) = @_;
        my $is = ref $have ? @$have : length $have;
        return $is == $length ? undef : "has $is and not $length";
    },
    '$contains' => sub {
        my ($wanted, $have, $known) = @_;
        my @rest = @$have;
        for my $want (@$wanted) {
            shift @rest while @rest && problem(fill($want, $known), $rest[0], $known);
            return 'lacks ' . shown($want) if !@rest;
            shift @rest;
        }
        return undef;
    },
);

# How `have` is not what the pattern `want` says.
sub problem {
    my ($want, $have, $known, $at) = @_;
    $at //= 'it';
    if (is_object($want)) {
        for my $operator (grep { $OPERATORS{$_} } keys %$want) {
            my $wrong = $OPERATORS{$operator}->($want->{$operator}, $have, $known);
            return $wrong && "$at is " . shown($have) . ", which $wrong";
        }
        return "$at is " . shown($have) . ' and no object' if !is_object($have);
        for my $key (sort keys %$want) {
            my $wrong = problem($want->{$key}, exists $have->{$key} ? $have->{$key} : $MISSING, $known, "$at.$key");
            return $wrong if $wrong;
        }
        return undef;
    }
    $want = fill($want, $known);
    if (ref $want eq 'ARRAY') {
        return "$at is " . shown($have) . ' and not ' . @$want . ' long' if ref $have ne 'ARRAY' || @$have != @$want;
        for my $n (0 .. $#$want) {
            my $wrong = problem($want->[$n], $have->[$n], $known, "$at.$n");
            return $wrong if $wrong;
        }
        return undef;
    }
    return same($want, $have) ? undef : "$at is " . shown($have) . ' and not ' . shown($want);
}

# What stands before the options may be left out elsewhere.
my %BEFORE = (submit => [undef, {}], output => [undef, 'stdout'], files => [undef]);

sub invoke {
    my ($client, $step, $args, $options) = @_;
    my ($method, %options) = ($step->{call}, %$options);
    my @args = @$args;
    if (%options && $BEFORE{$method}) {
        push @args, $BEFORE{$method}[@args] while @args < @{ $BEFORE{$method} };
    }
    my @pieces;
    $options{follow} = sub { push @pieces, $_[0] } if $options{follow};
    if (my $take = $step->{take}) {
        $options{each} = sub { push @pieces, $_[0]; return problem($take, $_[0], {}) };
    }
    my $value = $client->$method(@args, %options);
    return $step->{take} ? \@pieces : $value if $method ne 'output';
    $value = join '', @pieces if $options{follow};
    utf8::decode($value);
    return $value;
}

sub failure {
    my ($error) = @_;
    return { code => 'died', message => "$error" } if !ref $error;
    return { map { defined $error->$_ ? ($_ => $error->$_) : () } qw(code status message details retry_after task) };
}

sub slurp {
    my ($path) = @_;
    open my $file, '<:raw', $path or return undef;
    local $/;
    return scalar <$file>;
}

# A step that looks at files.
sub local_step {
    my ($step) = @_;
    if (my $path = $step->{write}) {
        make_path(dirname($path));
        open my $file, '>:utf8', $path or die "$path: $!";
        print {$file} $step->{text} x ($step->{times} // 1);
        close $file or die "$path: $!";
    }
    if ($step->{same}) {
        my ($one, $other) = map { slurp($_) } @{ $step->{same} };
        return "@{ $step->{same} } differ" if !defined $one || !defined $other || $one ne $other;
    }
    symlink $step->{to}, $step->{link} or die "$step->{link}: $!" if $step->{link};
    if (my $path = $step->{file}) {
        my $mode = sprintf '%o', (stat $path)[2] & 07777;
        return "$path has mode $mode" if $mode ne $step->{mode};
    }
    return "$step->{absent} is there" if $step->{absent} && -e $step->{absent};
    return undef;
}

sub run_step {
    my ($client, $step, $known, $warnings) = @_;
    my $call = $step->{call} or return local_step(fill($step, $known));
    @$warnings = ();
    $client = $client->with_traceparent(sub { $step->{trace} }) if $step->{trace};
    my $value;
    if (!eval { $value = invoke($client, $step, fill($step->{args} // [], $known), fill($step->{options} // {}, $known)); 1 }) {
        my $error = $@;
        return "$call: $error" if !$step->{error};
        return problem($step->{error}, failure($error), $known, "the error of $call");
    }
    return "$call returns " . shown($value) . ' and does not fail' if $step->{error};
    if ($step->{warning} && (@$warnings != 1 || problem($step->{warning}, $warnings->[0], $known))) {
        return "$call warns of " . shown($warnings);
    }
    $known->{ $step->{save} } = $value if $step->{save};
    return exists $step->{expect} ? problem($step->{expect}, $value, $known, $call) : undef;
}

sub ask {
    my ($url, $body) = @_;
    my $response = $body ? HTTP::Tiny->new->post($url, { content => $JSON->encode($body) }) : HTTP::Tiny->new->get($url);
    die "$url: $response->{content}" if !$response->{success};
    return $JSON->decode($response->{content});
}

sub run_case {
    my ($case, $known) = @_;
    my @warnings;
    ask("$known->{faults}/_script", $case->{script}) if $case->{script};
    my $client = Disbatch::Client->new(
        url => $case->{script} ? $known->{faults} : $known->{dci},
        $case->{script} ? (backoff => 0.02) : (),
        on_warning => sub { push @warnings, $_[0] },
        %{ fill($case->{client} // {}, $known) },
    );
    for my $step (@{ $case->{steps} }) {
        my $wrong = run_step($client, $step, $known, \@warnings);
        return $wrong if $wrong;
    }
    return undef if !$case->{requests};
    my $requests = ask("$known->{faults}/_requests");
    my @wanted = map { {%$_} } @{ $case->{requests} };
    return @$requests . ' requests, and not ' . @wanted . ': ' . shown($requests) if @$requests != @wanted;
    for my $n (0 .. $#wanted) {
        my $after = delete $wanted[$n]{after};
        return "request $n came too early" if defined $after && $requests->[$n]{at} - $requests->[ $n - 1 ]{at} < $after;
        my $wrong = problem($wanted[$n], $requests->[$n], $known, "request $n");
        return $wrong if $wrong;
    }
    return undef;
}

my %arguments = (-k => '', map { $ARGV[$_] eq '-k' ? (-k => $ARGV[$_ + 1]) : $ARGV[$_] eq '-v' ? (-v => 1) : () } 0 .. $#ARGV);
my $folder = File::Temp->newdir;
my %base = (run => 'pl', tmp => "$folder", map { ($_ => $ENV{"CONFORMANCE_\U$_"}) } qw(dci faults mongodb tls ca token));
my ($passed, $failed) = (0, 0);
for my $file (sort glob "$ENV{CONFORMANCE_CASES}/*.json") {
    for my $case (@{ $JSON->decode(slurp($file)) }) {
        next if ($case->{stage} // 'open') ne $ENV{CONFORMANCE_STAGE};
        my @variants = map { { plugin => $_->[0] =~ s/\$\{language\}/Perl/r, kind => $_->[1] } } @{ $case->{for} // [] };
        for my $more ($case->{for} ? @variants : undef) {
            my $name = $more ? "$case->{name} ($more->{kind})" : $case->{name};
            next if index($name, $arguments{-k}) < 0;
            my $started = Time::HiRes::time();
            my $wrong = run_case($case, $more ? { %base, %$more } : \%base);
            $wrong ? $failed++ : $passed++;
            next if !$wrong && !$arguments{-v};
            printf "%s %s (%.1f s) %s\n", $wrong ? 'FAILED' : 'ok', $name, Time::HiRes::time() - $started, $wrong // '';
        }
    }
}
print "perl: $passed passed, $failed failed\n";
exit($failed || (!$passed && $arguments{-k} eq '') ? 1 : 0);
