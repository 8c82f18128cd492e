package Disbatch::Client::Error;

# What Disbatch::Client dies with: an object with a code, and what else is known.

use strict;
use warnings;

use overload '""' => sub { $_[0]->as_string }, bool => sub { 1 }, fallback => 1;

my %CODES = (
    400 => 'bad_request',
    401 => 'unauthorized',
    403 => 'forbidden',
    404 => 'not_found',
    405 => 'method_not_allowed',
    408 => 'request_timeout',
    409 => 'conflict',
    410 => 'gone',
    413 => 'too_large',
    416 => 'range_not_satisfiable',
    421 => 'misdirected',
    422 => 'unprocessable',
    429 => 'too_many_requests',
    503 => 'unavailable',
);

sub new {
    my ($class, %self) = @_;
    return bless {%self}, $class;
}

sub throw {
    my ($class, %self) = @_;
    die $class->new(%self);
}

# The error that an answer of the server stands for.
sub of_answer {
    my ($class, $status, $body, $retry_after, $request) = @_;
    my $details = ref $body eq 'HASH' ? $body : {};
    my $said = $details->{error};
    my $message = defined $said && !ref $said ? $said : "the answer has status $status";
    my $code = $CODES{$status} // ($status >= 500 ? 'server_error' : 'error');
    if ($status == 400 && exists $details->{'MongoDB::DuplicateKeyError'}) {
        ($code, $message) = ('conflict', 'there is a queue with this name already');
    }
    for (['MongoDB::UpdateResult', 'matched_count'], ['MongoDB::DeleteResult', 'deleted_count']) {
        my ($part, $count) = @$_;
        next unless ref $details->{$part} eq 'HASH' && defined $details->{$part}{$count};
        $code = 'not_found' if $status == 400 && $details->{$part}{$count} == 0;
    }
    $code = 'quota_exceeded' if $status == 429 && exists $details->{limit};
    $code = 'rejected' if $status == 503 && exists $details->{rule};
    $code = $details->{code} if defined $details->{code} && !ref $details->{code};
    return $class->new(
        code => $code, status => $status + 0, message => $message, details => $details, request => $request,
        defined $retry_after ? (retry_after => $retry_after) : (),
    );
}

sub code        { $_[0]{code} }
sub status      { $_[0]{status} }
sub message     { $_[0]{message} }
sub details     { $_[0]{details} }
sub retry_after { $_[0]{retry_after} }
sub request     { $_[0]{request} }
sub task        { $_[0]{task} }

# Whether the server may have seen the request.
sub sent { $_[0]{sent} // 1 }

sub as_string {
    my ($self) = @_;
    my $text = defined $self->{status} ? "$self->{request}: $self->{status} $self->{message}" : $self->{message};
    return "$text\n";
}

1;
